"""Readings of rows of logits, kept by a live session or recorded in a trace: numpy, no MLX."""
