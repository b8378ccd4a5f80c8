"""Speed and memory over length and batch size."""
