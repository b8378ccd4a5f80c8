"""Segments: whose each token is, from one to the next, and what each cost."""
