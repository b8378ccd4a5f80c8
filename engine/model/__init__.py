"""A loaded model: its files, its tokenizer, and its forward passes over a KV cache."""
