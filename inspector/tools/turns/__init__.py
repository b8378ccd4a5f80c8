"""The next message of a conversation, behind the answer of the model."""
