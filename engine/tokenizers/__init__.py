"""Tokenizer traces, merge by merge, from tokenizer.json without a model."""
