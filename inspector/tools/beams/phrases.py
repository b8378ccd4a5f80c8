"""The words and texts of a beam search on the screen; all of them printable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from inspector.display import quoted, token_label
from inspector.state.beams import BeamNode, BeamSearch
from inspector.tools.beams.entries import BeamEntry, GreedyComparison


def number(value: float, digits: int = 3) -> str:
    """A number with a true minus."""
    return f"{value:.{digits}f}".replace("-", "−")


def state_phrase(entry: BeamEntry, short: bool = False) -> str:
    """The state of a beam, in a few words."""
    match entry.kind:
        case "fell":
            return f"out at {entry.fell}" if short else f"fell out at step {entry.fell}"
        case "live":
            word = "live"
        case "left":
            return "left" if short else "not finished"
        case _:
            word = entry.ended.removeprefix("eos ") or "live"
    if not (entry.greedy or entry.kind == "greedy"):
        return word
    return "greedy" if short else f"greedy, {word}"


def counts(entries: Sequence[BeamEntry]) -> str:
    """How many of a kind there are."""
    numbers = Counter(entry.kind for entry in entries)
    words = {"live": "live", "finished": "finished", "left": "not finished"}
    return " · ".join(f"{numbers[kind]} {words[kind]}" for kind in numbers if kind in words)


def settings_phrase(search: BeamSearch, short: bool = False) -> str:
    """The settings of a search."""
    opened = search.opened
    if short:
        early = "early stop" if opened.early_stopping else "no early stop"
        return f"width {opened.width} · max {opened.max_tokens} · penalty {opened.length_penalty:g} · {early}"
    return (
        f"width {opened.width} · max tokens {opened.max_tokens} · length penalty {opened.length_penalty:g} · "
        f"early stopping {'on' if opened.early_stopping else 'off'}"
    )


def name_of(entry: BeamEntry) -> str:
    """What a beam is called."""
    if entry.place is None:
        return "greedy decoding" if entry.kind == "greedy" else "this beam"
    return f"{'beam' if entry.kind == 'live' else 'hypothesis'} {entry.place}"


def greedy_sentence(entry: BeamEntry, against: GreedyComparison | None) -> str:
    """Where a beam parts from greedy decoding, and by how much logprob."""
    if against is None:
        return ""
    name = name_of(entry).capitalize()
    if against.mine is None or against.greedy is None:
        return _alike(entry, name, against)
    return f"{name} parts from greedy at token {against.shared + 1}: {_parting(against)}; {_gap(against)}"


def _alike(entry: BeamEntry, name: str, against: GreedyComparison) -> str:
    if entry.kind == "greedy":
        return "This is greedy decoding: always the most probable token"
    if against.longer == 0:
        return f"{name} is what greedy decoding says, token for token"
    if against.longer < 0:
        return f"{name} is how greedy decoding begins; that goes on for {_tokens(-against.longer)}"
    return f"{name} begins with all that greedy decoding says, and goes on for {_tokens(against.longer)}"


def _parting(against: GreedyComparison) -> str:
    assert against.mine is not None
    assert against.greedy is not None
    mine, greedy = number(against.mine.logprob, 2), number(against.greedy.logprob, 2)
    return f"{_token(against.mine)} {mine}, greedy {_token(against.greedy)} {greedy}"


def _gap(against: GreedyComparison) -> str:
    word = "ahead" if against.gap >= 0 else "behind"
    return f"{number(abs(against.gap))} {word} in logprob after {_tokens(against.tokens)}"


def _token(token: BeamNode) -> str:
    return quoted(token_label(token.text)) if token.text else "an unfinished character"


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"
