"""A small model trained live: its text, its tokenizer, the learner and its checkpoints."""
