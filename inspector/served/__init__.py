"""Recorded requests to model servers, and their replies."""
