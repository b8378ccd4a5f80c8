"""The keys that every session has, as tools of the main screen's own."""
