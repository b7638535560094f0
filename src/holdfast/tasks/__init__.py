"""What users declare: tasks, and how their args and results become JSON text and come back equal."""
