"""Session files: written during a session, listed and found again."""
