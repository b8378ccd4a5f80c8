"""Two models over one text: the distributions of both at each token, and how far they are apart."""
