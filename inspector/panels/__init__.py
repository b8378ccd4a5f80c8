"""What is drawn: one module a panel. Panels know the timeline, never the engine nor each other."""
