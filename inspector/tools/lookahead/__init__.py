"""What greedy decoding would bring after each candidate."""
