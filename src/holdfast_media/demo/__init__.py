"""The demonstration: a film is made, encoded by two workers, one of which is killed, and every frame of it accounted for."""
