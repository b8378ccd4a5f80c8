"""Several prompts at once: a lane for each, a forward for all."""
