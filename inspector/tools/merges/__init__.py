"""A tokenizer taken apart: the ladder of a word, and two tokenizers over one text."""
