"""A small model that is trained live: its text, tokenizer, learner and checkpoints."""
