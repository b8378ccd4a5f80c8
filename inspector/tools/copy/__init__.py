"""Putting a token, a text or a path on the terminal's clipboard."""
