"""The forms in which the records of a run are written: text and tables, JSON lines."""
