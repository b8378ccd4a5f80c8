"""Random keys, mouse, pastes, sizes and late records against the whole program: `python -m tests.fuzz --seed 1 --keys 1500`."""
