"""The panels of the main screen that every session has."""
