"""`holdfast media …`: the media application on the command line."""
