"""A long run of everything at once: real processes and servers, a fault every few seconds, and books that must balance."""
