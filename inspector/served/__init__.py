"""Servers of models: what they were asked and what they answered, recorded and opened."""
