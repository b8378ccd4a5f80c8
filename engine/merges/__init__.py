"""Tokenizers taken apart, merge by merge, and trained in a moment: from tokenizer.json alone, without a model."""
