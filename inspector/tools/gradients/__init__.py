"""Gradients: which tokens of the context a logit hangs on."""
