"""Random keys, mouse, pastes, sizes and late records against the whole program: `python -m tests.fuzz --help`."""
