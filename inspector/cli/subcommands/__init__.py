"""The subcommands: their parsers, and the functions that run them."""
