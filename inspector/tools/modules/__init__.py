"""The inside of the loaded model: its modules as the way of a token, and the experts that a token went through."""
