"""Watching a folder: each complete file becomes one job, once, whoever watches and however often they restart."""
