"""Interventions: parts of the model switched off or scaled, held for a branch, or replaced by those of another path."""
