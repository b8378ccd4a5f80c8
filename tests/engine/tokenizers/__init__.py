"""Tokenizers taken apart: against the library, and against plain references."""
