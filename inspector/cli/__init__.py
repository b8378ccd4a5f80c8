"""The command line: the subcommands, the flags that they share, and the writers of their output."""
