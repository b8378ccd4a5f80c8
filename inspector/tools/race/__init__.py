"""The same tokens with a KV cache and without one."""
