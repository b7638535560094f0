"""Clips: a piece of a video, cut to the frame, published once."""
