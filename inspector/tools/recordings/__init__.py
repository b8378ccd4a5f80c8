"""Recorded sessions: opened, continued live, saved and listed."""
