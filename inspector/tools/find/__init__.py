"""Search the vocabulary at a token, and the text."""
