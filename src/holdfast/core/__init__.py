"""The rules, pure: no I/O, no clock, no randomness, no asyncio. Time and chance come in as arguments."""
