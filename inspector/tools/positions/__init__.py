"""Positions: what a wrong offset does, and a missing causal mask."""
