"""Beam search on its own screen."""
