"""The pages of the help: names, titles and contents. Their texts are read when they are opened."""

from __future__ import annotations

import re

PAGES: tuple[tuple[str, str], ...] = (("keys", "Keys"), ("concepts", "What is shown"), ("walks", "Walks"))
"""The pages with a tab of their own: file name without its ending, and title."""
TOPICS: tuple[tuple[str, str, str], ...] = (
    ("sampling", "Sampling", "why this token, other settings, text that must match"),
    ("branches", "Branches and conversations", "the tree, jumps and breakpoints, tokens, turns, segments"),
    ("inside", "Inside the model", "attention, lens, contributions, parts switched off or patched"),
    ("decoding", "Beams, drafts and batches", "beam search, speculative decoding, several prompts"),
    ("comparing", "Two models, fewer bits", "second model, KL, a gate for scripts"),
    ("recordings", "Recordings and exports", "replays, pages, Markdown, a browser (textual-serve)"),
    ("command-line", "Without a screen", "generate, JSON lines, conversations, all commands"),
    ("python", "Python", "sessions from a program or a notebook"),
    ("models", "Models and machines", "other models, CPUs, GPUs, several processes, ssh"),
    ("parts/servers", "Recorded requests", "of a server: record, open and compare them"),
    ("learning", "Learning and teaching", "take a lesson, give one before a class"),
    ("courses", "Courses for teachers", "three courses: times, talking points, questions to the class"),
    ("lessons", "Writing lessons", "the form of a lesson, how to check and record it"),
    ("parts/tokenizer", "Tokenizer", "how a text becomes tokens, merge by merge"),
    ("parts/embedding", "Embedding", "from an id to a list of numbers"),
    ("parts/position", "Position", "RoPE and others: how a model knows where a token stands"),
    ("parts/attention", "Attention", "how a token gets something from those before it"),
    ("parts/key-value", "Query, key and value", "what attention compares, and what a cache keeps"),
    ("parts/head", "Head", "several attentions side by side, and why they share keys"),
    ("parts/norm", "Norm", "what keeps the numbers at one scale"),
    ("parts/mlp", "MLP", "the larger part of a layer, and when it isn't"),
    ("parts/hooks", "Hook names", "TransformerLens's names for parts of a model, and where each is shown"),
    ("parts/grammar", "Grammar", "text that must match: digits, a date, JSON"),
    ("parts/differences", "Where programs and courses differ", "orders, growth, names"),
    ("keys-of-your-own", "Keys of your own", "another key for any action"),
    ("recording-format", "The recording format", "what the file of a session holds, and how to read it"),
    ("events", "Events", "the events of JSON lines and recordings, with their fields"),
    ("figures", "Measured", "speed and memory, beside mlx_lm and transformers"),
    ("limits", "Limits", "what the program can't do, and what was not tried"),
    ("terms", "Terms", "each word with its one meaning"),
)
"""The other pages: path in `help` without the ending, title, and contents."""
_PICTURE = r"(?m)^!\[.*\n\n?"


def page(name: str) -> str:
    """The Markdown of one page of the help without its pictures, by its path in `help` without the ending."""
    from importlib import resources  # saves 1 ms at the start

    text = (resources.files("inspector") / "help" / f"{name}.md").read_text(encoding="utf-8")
    return re.sub(_PICTURE, "", text)
