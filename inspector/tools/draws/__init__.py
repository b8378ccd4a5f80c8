"""Many draws of one prompt: what the odds really are."""
