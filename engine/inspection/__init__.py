"""Ways of looking at a distribution that was computed already, and at typed text."""
