"""Faults that need root or Debian packages: networks that are cut, clocks that jump, disks that fill up, a real PgBouncer.

Run by `./dev faults` alone, which installs what is missing.
"""
