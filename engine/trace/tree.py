"""Check a trace's consistency: a step needs its parent, a move its target."""

from __future__ import annotations

from engine.records import Moved, PrefillChunk, Prefilled, PromptOpened, PromptToken, Step
from engine.trace.shapes import Misfit

ROOT = 0


class KnownNodes:
    """The nodes of the lines so far, of the tree that the last prompt began."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {ROOT: ROOT}
        self._prompt: tuple[PromptToken, ...] = ()

    def check(self, value: object) -> None:
        """Check one record, and add its nodes.

        Raises:
            Misfit: It refers to a node that no earlier line has.
        """
        match value:
            case Step():
                self._step(value)
            case Moved() if value.node not in self._parents:
                raise Misfit(f"moves to node {value.node}, which no line before it tells")
            case PromptOpened():
                self._open(value)
            case PrefillChunk():
                self._same(value.echo)
            case Prefilled():
                self._same(value.tokens)

    def _open(self, opened: PromptOpened) -> None:
        self._parents, self._prompt, before = {ROOT: ROOT}, opened.tokens, ROOT
        for place, token in enumerate(opened.tokens):
            if token.node <= before or token.position != place:
                raise Misfit(f"has the prompt's tokens out of order, at node {token.node}")
            self._parents[token.node] = before
            before = token.node

    def _same(self, tokens: tuple[PromptToken, ...]) -> None:
        for token in tokens:
            known = self._prompt[token.position] if 0 <= token.position < len(self._prompt) else None
            if known is None or known.node != token.node:
                raise Misfit(f"has a token of the prompt that the prompt hasn't, at node {token.node}")

    def _step(self, step: Step) -> None:
        if step.parent not in self._parents:
            raise Misfit(f"stands on node {step.parent}, which no line before it tells")
        if step.node <= step.parent or self._parents.setdefault(step.node, step.parent) != step.parent:
            raise Misfit(f"has node {step.node} after node {step.parent}, where it can't be")
