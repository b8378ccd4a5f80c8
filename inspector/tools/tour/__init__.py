"""A guided tour of the panels: what each of them answers."""
