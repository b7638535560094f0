"""Hints that there is something to do: they save waiting, and nothing depends on them."""
