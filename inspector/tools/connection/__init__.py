"""The connection to an engine elsewhere: how it stands, tried again, given up."""
