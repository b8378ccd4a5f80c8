"""Several prompts at once, a lane for each."""
