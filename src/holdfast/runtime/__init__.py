"""What runs: clients that enqueue, workers that claim, execute and settle."""
