"""The demonstration: real worker processes, one killed and one frozen in the middle of jobs, and an account at the end."""
