"""What Holdfast must survive: a catalogue of faults, each with tests that bring it about, and a command that runs them."""
