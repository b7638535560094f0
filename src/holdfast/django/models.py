"""No models: jobs are kept in a schema of their own. Django signals the end of `migrate` only to apps that have this module."""
