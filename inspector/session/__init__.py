"""The client of a live engine or a recording, with one protocol for both, and the user's actions."""
