"""The jobs of a transcode: what each of them does, and how they hang together."""
