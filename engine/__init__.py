"""The stepping engine: prefill and decode on MLX one step at a time, with no terminal."""
