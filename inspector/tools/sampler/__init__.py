"""The sampler."""
