"""Search the vocabulary at a token."""
