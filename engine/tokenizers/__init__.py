"""Traces of tokenizers, merge by merge: from tokenizer.json alone, without a model."""
