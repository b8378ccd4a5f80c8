"""A grammar that the text must match, and what it expects at each token."""
