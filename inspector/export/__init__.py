"""A session as a document: a web page, Markdown, plain text or a table of steps. Needs no model and no MLX."""
