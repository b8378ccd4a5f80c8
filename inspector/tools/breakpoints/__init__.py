"""Where runs stop, and the places on a path that are worth a look."""
