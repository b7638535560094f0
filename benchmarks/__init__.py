"""How fast Holdfast is, measured."""
