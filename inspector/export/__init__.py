"""A session as a document: a web page, Markdown, plain text, or a table of steps. No model and no MLX is needed."""
