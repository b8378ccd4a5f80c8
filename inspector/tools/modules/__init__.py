"""What is inside the loaded model: its modules as the way of a token, and which experts one took."""
