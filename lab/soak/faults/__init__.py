"""What is done to the fleet."""
