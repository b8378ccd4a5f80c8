"""What was read inside the model, and what was changed there, as the panels show it."""
