"""The command line: one file a subcommand, the flags that they share, and what they write with."""
