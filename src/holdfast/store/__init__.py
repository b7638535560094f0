"""Where jobs are kept: one port, several adapters with identical semantics, one conformance suite."""
