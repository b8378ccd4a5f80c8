"""A loaded model: its files, its tokenizer, and forwards of it over one cache or over a batch of rows."""
