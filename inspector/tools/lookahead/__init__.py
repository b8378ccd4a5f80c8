"""The text that greedy decoding would bring after each candidate."""
