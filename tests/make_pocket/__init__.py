"""Scripts that made the bundled model and the stories that ship with the program."""
