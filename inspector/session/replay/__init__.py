"""A recording in the place of an engine: read, played, stepped through, and asked."""
