"""Tokenizers taken apart and trained: against the library, and against plain references."""
