"""Lessons: their files, their runs, their checks and recordings. Without Textual; the screen's part is a tool."""
