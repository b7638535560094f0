"""Deterministic simulation of a whole fleet: the real runtime on a virtual clock, with everything going wrong that can."""
