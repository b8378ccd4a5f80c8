"""What the screens that look inside the model have in common: the text with its token, checks, neighbours, keys."""
