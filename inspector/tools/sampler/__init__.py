"""The sampler: the reason for a token, and the picks of other settings."""
