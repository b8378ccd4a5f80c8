"""Attention: where each head of each layer looks."""
