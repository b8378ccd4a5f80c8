"""Prompts given in other ways than as one text."""
