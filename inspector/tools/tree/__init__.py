"""The tree of branches, and what the user writes on it."""
