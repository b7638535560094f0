"""The control plane: a store as a service that people and machines use."""
