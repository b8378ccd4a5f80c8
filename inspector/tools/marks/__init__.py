"""The marks of a session: the way from one to the next, and a list of them all."""
