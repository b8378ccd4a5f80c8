"""The models on this disk, read from their config.json and the headers of their weights: neither MLX nor mlx_lm is
imported, and no weight is read."""
