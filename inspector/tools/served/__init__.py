"""Requests of a server, opened as sessions."""
