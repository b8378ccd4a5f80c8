"""One file a subcommand: its parser and what it runs."""
