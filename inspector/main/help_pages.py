"""The pages of the help: names, titles and what each tells. Their texts are read when they are opened."""

from __future__ import annotations

PAGES: tuple[tuple[str, str], ...] = (
    ("keys", "Keys"),
    ("concepts", "What is shown"),
    ("walks", "Walks"),
    ("lessons", "Writing lessons"),
)
"""File name without its ending, and title."""
TOPICS: tuple[tuple[str, str, str], ...] = (
    ("embedding", "Embedding", "from an id to a list of numbers"),
    ("position", "Position", "RoPE and others: how a model knows where a token stands"),
    ("attention", "Attention", "how a token gets something from those before it"),
    ("key-value", "Query, key and value", "what attention compares, and what a cache keeps"),
    ("head", "Head", "several attentions side by side, and why they share keys"),
    ("norm", "Norm", "what keeps the numbers at one scale"),
    ("mlp", "MLP", "the larger part of a layer, and when it isn't"),
    ("hooks", "Hook names", "TransformerLens's names for parts of a model, and where each is shown"),
    ("grammar", "Grammar", "text that must match: digits, a date, JSON"),
    ("elsewhere", "An engine elsewhere", "the model on one machine, the screen on another"),
    ("servers", "Recorded requests", "of a server: record, open and compare them"),
    ("browser", "In a browser", "a class that watches, who may come in, keys that browsers take"),
    ("differences", "Where programs and courses differ", "orders, growth, names"),
)
"""File name in `help/parts` without its ending, title, and what the page tells."""
