"""Contributions: what each layer, attention, MLP and head adds to a logit."""
