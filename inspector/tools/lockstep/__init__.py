"""Two models in lockstep: one text, the distributions of both at each token."""
