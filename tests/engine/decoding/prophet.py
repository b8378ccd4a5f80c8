"""A draft that knows the text, and is wrong at places of its own: every number of accepted tokens comes about."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence

from engine.decoding.speculation import Drafter, DraftPaths, LookupDraft, Proposal, Proposed, Round
from engine.model.load import Loaded
from engine.protocol import DraftRound, Record, Step
from engine.session.session import Session
from engine.settings import Settings, SpeculationSettings
from engine.task import Stopped, never
from tests.engine.sessions import begun

PROMPT = [5, 77, 300, 12, 9, 1000, 44, 8]


class Prophet(LookupDraft):
    """Proposes what plain steps took, but for a share of the tokens.

    Args:
        ids: The whole text, with the prompt.
        wrong: How often a token is another one.
        seed: Of the places.
    """

    def __init__(self, ids: Sequence[int], wrong: float = 0.25, seed: int = 1) -> None:
        self._ids, self._wrong, self._random = list(ids), wrong, random.Random(seed)

    def propose(
        self, paths: DraftPaths, node: int, count: int, settings: Settings, stopped: Stopped
    ) -> Proposal:
        """Propose tokens after a node, as every draft."""
        at, tokens = len(paths.tokens(node)), list[Proposed]()
        for token in self._ids[at : at + count]:
            drafted = (token + 1) % 500 if self._random.random() < self._wrong else token
            node = paths.add(node, drafted)
            tokens.append(Proposed(drafted, node, None))
        return tokens, 0


def plain(loaded: Loaded, settings: Settings, tokens: int, ids: Sequence[int] = PROMPT) -> list[Step]:
    """Plain steps after a prompt, up to an end of sequence."""
    session = begun(loaded, ids, settings)
    steps = [session.step()]
    while len(steps) < tokens and steps[-1].id not in session.tokens.eos_ids:
        steps.append(session.step())
    return steps


def rounds(
    session: Session, draft: Drafter, tokens: int, number: int = 3
) -> tuple[list[Step], list[DraftRound]]:
    """Rounds after a session's node, for so many tokens or up to an end of sequence."""
    paths, settings = DraftPaths(session), SpeculationSettings(num_draft_tokens=number)
    steps: list[Step] = []
    found: list[DraftRound] = []

    def taken(step: Step) -> Generator[Record, None, bool]:
        assert session.node == step.node
        steps.append(step)
        yield step
        return len(steps) == tokens or step.id in session.tokens.eos_ids

    while not steps or (len(steps) < tokens and steps[-1].id not in session.tokens.eos_ids):
        *_, told = Round(session, draft, paths, settings).run(never, taken)
        assert isinstance(told, DraftRound)
        found.append(told)
        assert session.kv.offset == session.tree[session.node].depth
    return steps, found
