"""Speculative decoding, watched: rounds, what became of their drafts, and whether it paid."""
