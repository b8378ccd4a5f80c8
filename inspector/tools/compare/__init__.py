"""Two branches compared."""
