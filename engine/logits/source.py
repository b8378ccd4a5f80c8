"""Where rows of logits are looked up: a live session, or what was recorded of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from engine.errors import COMPUTE_AGAIN, StepError
from engine.logits.node_sampler import NodeSampler
from engine.logits.token_texts import TokenTexts
from engine.protocol import ModelFacts
from engine.sampling.ranking import Row
from engine.settings import Settings
from engine.tree import ROOT, TokenPaths

Stopped = Callable[[], bool]


def never() -> bool:
    """Of a question that nobody takes back."""
    return False


class LogitsSource(Protocol):
    """What questions about the sampler and the vocabulary are answered from: a session, or a `RecordedSource`."""

    @property
    def tree(self) -> TokenPaths:
        """The tokens taken."""

    @property
    def node(self) -> int:
        """The current node."""

    @property
    def facts(self) -> ModelFacts:
        """About the model."""

    @property
    def tokens(self) -> TokenTexts:
        """Its tokens."""

    @property
    def settings(self) -> Settings:
        """In force."""

    @property
    def settings_at(self) -> Mapping[int, Settings]:
        """By node, the settings of its last distribution."""

    @property
    def pending(self) -> Mapping[int, bytes]:
        """By node, the bytes of a character that its text leaves unfinished."""

    @property
    def node_reader(self) -> NodeSampler:
        """Samples after the nodes."""

    def row_at(self, node: int) -> Row | None:
        """The logits after a node, float32, shape (vocabulary,); None where they aren't kept."""


def draw_reroll(source: LogitsSource, node: int) -> int:
    """The re-roll count of the draw after a node: of the token taken there, or at the current node of the next one."""
    at = source.tree[node]
    return at.reroll if node == source.node or at.latest is None else source.tree[at.latest].drawn_reroll


def check_node(source: LogitsSource, node: int) -> None:
    """Check that there is a node.

    Raises:
        StepError: There is none of that number.
    """
    if node not in source.tree:
        raise StepError(f"There is no token number {node}.", "Begin with a prompt.")


def kept_row(source: LogitsSource, node: int) -> Row:
    """The kept logits after a node, float32, shape (vocabulary,); the current node of a session always has some.

    Raises:
        StepError: There is no such node, it is the root, or its logits aren't kept: dropped to hold the memory bound,
            or inside the prompt, whose chunks leave none behind.
    """
    check_node(source, node)
    if node == ROOT:
        raise StepError(
            "Nothing is expected of the first token: there is no text before it.", "Go to a later one."
        )
    row = source.row_at(node)
    if row is None and node not in source.settings_at:
        raise StepError("The logits here were not kept.", f"{COMPUTE_AGAIN}.")
    if row is None:
        raise StepError(
            "The logits of this step were dropped to hold the memory bound.",
            f"{COMPUTE_AGAIN}, or start with more --kept-logits-mib.",
        )
    return row
