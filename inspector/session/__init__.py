"""The client of an engine, live or recorded behind one protocol, and what a person asks of it. No Textual."""
