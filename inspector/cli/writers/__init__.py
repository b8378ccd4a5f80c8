"""The writers of a run's records: as text and tables, and as JSON lines."""
