"""The sampler, which picks a token from a row of logits: ordered stages, one draw, and ranks. Uses numpy, not MLX."""
