"""Text of one's own, put into the path."""
