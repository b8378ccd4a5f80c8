"""Two branches set against each other."""
