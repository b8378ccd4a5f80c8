"""The tree of branches, and what a person writes on it."""
