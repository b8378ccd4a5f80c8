"""Which tokens of a path the model ran in chunks: a few kinds of cache give other numbers for another cut."""

from __future__ import annotations

Chunks = tuple[tuple[int, int], ...]
"""Stretches of a path as (first, end), counted in tokens from 0, in order and apart. A stretch may have been cut into
chunks anywhere; the model ran the tokens outside of all stretches one by one."""


def of_prompt(tokens: int) -> Chunks:
    """Those of a path that is one prompt and what was stepped after it: its last token is a separate forward."""
    return ((0, tokens - 1),) if tokens > 1 else ()


def cut(chunks: Chunks, depth: int) -> Chunks:
    """Those of the first `depth` tokens."""
    return tuple((first, min(end, depth)) for first, end in chunks if first < depth)


def inside(chunks: Chunks, depth: int) -> bool:
    """Whether `depth` tokens end within a stretch."""
    return any(first < depth < end for first, end in chunks)


def goes_on(held: Chunks, path: Chunks, depth: int) -> bool:
    """Whether a path goes on behind `depth` tokens that ran in chunks `held`, with the path's own numbers."""
    return cut(held, depth) == cut(path, depth) and not inside(path, depth)


def appended(chunks: Chunks, first: int, end: int) -> Chunks:
    """With the tokens from `first` to `end`, which follow all others."""
    if chunks and chunks[-1][1] == first:
        return (*chunks[:-1], (chunks[-1][0], end))
    return (*chunks, (first, end))


def end_at(chunks: Chunks, done: int) -> int:
    """End of the stretch that the token after `done` tokens is in; `done` where it runs by itself."""
    return next((end for first, end in chunks if first <= done < end), done)
