"""What the HTTP API and those who speak it say to each other: every request and answer as a struct, and the way to the port.

Durations are milliseconds (`*_ms`), times ISO 8601 with a zone, args and results JSON as they are stored, digit for digit.
"""
