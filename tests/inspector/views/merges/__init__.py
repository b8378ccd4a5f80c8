"""A tokenizer taken apart on the screen."""
