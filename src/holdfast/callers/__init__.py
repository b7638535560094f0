"""Callers' own stacks: what somebody brings a transaction on, each turned into a `store.port.Caller`.

A library is imported only by the module that bears its name, and that module only when a connection of it was given.
"""
