"""Telling people what they should know: signed webhooks, delivered as jobs of Holdfast's own queue."""
