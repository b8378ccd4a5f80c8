"""What the records of a run are written as: text and tables, JSON lines, a trace."""
