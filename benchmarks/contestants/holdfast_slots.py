"""The best slots and prefetch found for Holdfast on each task; on the page, too."""

SLOTS = {"noop": (200, 4000), "sleep": (500, 500), "burn": (2, 40), "latency": (20, 0)}
