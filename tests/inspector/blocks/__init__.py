"""Blocks of documents, and what draws them."""
