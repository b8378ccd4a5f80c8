"""A tokenizer taken apart: the ladder of a word, two tokenizers over one text, one trained on a text of one's own."""
