"""Interventions: units of the model switched off, scaled or replaced, for a look or for a branch under them."""
