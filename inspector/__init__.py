"""The screen and the command line of mlx-inspector."""
