"""A result as a document of blocks, and the painters that make rows of a panel or terminal, HTML or CSV of them."""
