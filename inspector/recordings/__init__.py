"""Sessions as files: written as they happen, listed and found again."""
