"""The base of the screens that look inside the model: the text with its token, checks, neighbours, keys."""
