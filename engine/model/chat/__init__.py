"""The chat template of a model: filled in a process with limits, and what its values are."""
