"""Tokenizers taken apart, merge by merge: from tokenizer.json alone, without a model."""
