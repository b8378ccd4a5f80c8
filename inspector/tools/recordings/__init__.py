"""Recorded sessions: opened, gone on with live, saved and listed."""
