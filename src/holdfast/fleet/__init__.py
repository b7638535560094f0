"""The worker manager: as many worker processes on one machine as the work needs."""
