"""The client of an engine, live or recorded behind one protocol, and the actions of its user."""
