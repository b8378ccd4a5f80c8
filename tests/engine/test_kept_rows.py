"""No command replaces what the session keeps of its path: walks over every command that the engine has.

Before and after each command that leaves the session where it is, all caches and all kept rows of logits are compared
bit for bit. After those that step or move, a row that was kept before must still be the one that was shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from threading import Event
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine import protocol
from engine.breakpoints import Breakpoints
from engine.decoding.speculation import compare_with_plain
from engine.errors import Cancelled
from engine.model.load import Loaded
from engine.protocol import (
    COMMANDS,
    Command,
    Direction,
    Grown,
    Intervention,
    LanePrompt,
    Message,
    Record,
    floats,
)
from engine.sampling.ranking import Row
from engine.session.session import CUT_NOTE, KeptLogits, Session
from engine.settings import BeamSettings, LoadSettings, Settings, SpeculationSettings, TrainingSettings
from engine.task import Task, never
from engine.tree import Chunks
from engine.worker import Worker
from tests.zoo import Zoo

QUANTIZED = {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0}
KINDS_OF_CACHE: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("llama", {}),
    "the bundled model, quantized": ("pocket", QUANTIZED),
    "rotating": ("phi3", {"max_kv_size": 32}),
    "quantized": ("qwen3", QUANTIZED),
    "recurrent beside plain": ("qwen3-next", {}),
    "sliding": ("gemma3", {}),
    "no kept KV": ("llama", {**QUANTIZED, "kept_kv_mib": 0}),
    "no cache": ("llama", {"no_kv_cache": True}),
    "experts": ("mixtral", {}),
    "recurrent": ("mamba2", {}),
}
"""Model and load settings by what its cache is."""
ROWS = 12
"""Rows of logits that are kept, so that some were dropped and are wanted again."""
ROUNDING = 1e-4
"""Largest difference of a logit between two orders of sums, as in test_walks.py; another cut into chunks gives 0.01 and
more where keys and values have 4 bits."""
MOVING = {
    "AddTurn", "Choose", "Configure", "FollowSecond", "GoOnPrefill", "HoldInterventions", "Insert", "Load", "MoveTo",
    "Prefill", "Reroll", "Restore", "Run", "RunRounds", "TakeStep", "Take", "TakeRound",
}  # fmt: skip
"""Kinds of commands that step, move, or sample again; every other one leaves the session as it is."""

APART = {"BeginTraining", "MeasureRoofline", "ResumeTraining", "SaveCheckpoint", "Train"}
"""Kinds of commands that have a model of their own or none: half of a walk's time, and the same beside every cache."""


class AfterPolls(Event):
    """Is set once it was asked for so often.

    Args:
        polls: Times that it answers no.
    """

    def __init__(self, polls: int) -> None:
        super().__init__()
        self._left = polls

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


class Walk:
    """A worker, the session that it works on, and what was shown so far.

    Args:
        loaded: The model.
        seed: Of all that is chosen at random.
    """

    def __init__(self, loaded: Loaded, seed: int) -> None:
        self.random = Random(seed)
        self.found: list[Record] = []
        self.worker = Worker(lambda received: self.found.append(received.record))
        self.loaded = loaded
        self.shown: dict[int, tuple[Chunks, Row]] = {}
        """By node, the row that was first seen after it, and the cut of its path then."""
        self.open()

    def open(self) -> None:
        """Begin a session on the model, whose weights need not be read again."""
        settings = Settings(temp=1.0, seed=self.random.randrange(1000), max_tokens=6, candidates=8)
        self.do(protocol.Configure(settings))
        context = self.worker._context
        context.loaded, context.opened = self.loaded, Session(self.loaded, settings)
        self.session.kept_logits.budget = min(self.session.kept_logits.budget, ROWS * 4 * 4096)
        self.shown = {}
        self.do(protocol.Prefill(self.text(30), chat=self.random.random() < 0.5))
        self.do(protocol.Run(until=Breakpoints(tokens=4)))

    @property
    def session(self) -> Session:
        return self.worker._context.session

    def do(self, command: Command, polls: int | None = None) -> list[Record]:
        """Carry out a command.

        Args:
            command: Any.
            polls: Cancels it when it has asked so often whether it is cancelled; None doesn't.
        """
        start = len(self.found)
        self.worker.carry_out(Task(command) if polls is None else Task(command, cancel=AfterPolls(polls)))
        for record in (found := self.found[start:]):
            assert not isinstance(record, protocol.Failure) or record.expected, record
        return found

    # ---- what a command is made of ----------------------------------------------------------

    def text(self, words: int) -> str:
        return " ".join(self.random.choices(("once", "a", "dog", "ran", "home", "and", "sat"), k=words))

    @property
    def node(self) -> int:
        """Any node of the tree."""
        return self.random.randrange(1, len(self.session.tree))

    @property
    def two_of_a_depth(self) -> tuple[int, int]:
        """The token that a step just took, and another one in its place."""
        self.do(protocol.Choose(self.session.node, self.token))
        return self.session.node, self.session.tree.add(
            self.session.tree[self.session.node].parent, 9, "chosen"
        )

    @property
    def on_path(self) -> int:
        return self.random.choice(self.session.tree.nodes(self.session.node))

    @property
    def some_of_the_path(self) -> tuple[int, ...]:
        """Some nodes of the path in its order, of which those in the middle of a prompt are the ones to watch."""
        path = self.session.tree.nodes(self.session.node)
        return tuple(path[place] for place in sorted(self.random.sample(range(len(path)), min(8, len(path)))))

    @property
    def token(self) -> int:
        return self.random.randrange(3, 4000)

    @property
    def grown(self) -> tuple[Grown, ...]:
        """The tree as a recording has it."""
        tree = self.session.tree
        nodes = [(number, tree[number]) for number in range(1, len(tree)) if tree[number].token >= 0]
        return tuple(
            Grown(number, at.parent, at.token, at.origin, at.has_step, at.prompt_begin)
            for number, at in nodes
            if not at.intervention_set
        )

    # ---- what must not change ---------------------------------------------------------------

    def rows(self) -> dict[int, Row]:
        """Copies of all kept rows, and the one of the current node."""
        session = self.session
        kept = {node: row.copy() for node, row in session.kept_logits._rows.items()}
        return kept if session._position is None else {**kept, session.node: session.logits.copy()}

    def arrays(self) -> list[np.ndarray]:
        """Copies of all arrays of all caches."""
        return [np.array(array.astype(mx.float32)) for array in self.session.kv.state()]

    def check(self, command: Command) -> None:
        """Check that what is kept of a node is what was first seen after it: nothing of it ran in another cut."""
        tree = self.session.tree
        for node, row in self.rows().items():
            cut, first = self.shown.setdefault(node, (tree.chunks(node), row))
            if cut != tree.chunks(node):  # a longer prompt was read up to there since
                self.shown[node] = tree.chunks(node), row
                continue
            away = float(np.abs(row - first).max())
            assert away <= ROUNDING, f"{command}: the row after node {node} was another by {away:.3g}"

    # ---- what is done -----------------------------------------------------------------------

    def go(self, kind: str) -> None:
        """Carry out a command of a kind."""
        if kind == "Load" or (self.session._position is None and kind != "GoOnPrefill"):
            self.open()
            return
        if kind in BEFORE:
            self.go(BEFORE[kind])
        command, tree, rows = MAKERS[kind](self), self.session.tree, self.rows()
        polls = self.random.choice((None, None, None, 2, 3, 5))
        if kind in MOVING:
            self.do(command, polls)
        else:
            self.stay(command, polls)
            for node, row in self.rows().items():
                assert node not in rows or row.tobytes() == rows[node].tobytes(), f"{command}: node {node}"
        if self.session.tree is not tree:
            self.shown = {}
        self.check(command)

    def stay(self, command: Command, polls: int | None) -> None:
        """Carry out a command that leaves the session as it is."""
        node, offset, arrays = self.session.node, self.session.kv.offset, self.arrays()
        self.do(command, polls)
        assert self.session.node == node, command
        if self.session.cached and offset < self.session.tree[node].depth:
            return  # a cancelled move left the cache short, and whoever needs the path completes it
        assert self.session.kv.offset == offset, command
        for before, after in zip(arrays, self.arrays(), strict=True):
            assert before.tobytes() == after.tobytes(), f"{command} wrote into the live cache"


def speculation(walk: Walk) -> SpeculationSettings:
    return SpeculationSettings(num_draft_tokens=walk.random.randint(1, 3))


def intervention(walk: Walk) -> tuple[Intervention, ...]:
    layer = walk.random.randrange(2)
    if walk.random.random() < 0.5:
        return (Intervention("mlp", layer),)
    return (Intervention("direction", layer, None, walk.random.choice((-2.0, 0.0, 2.0)), steer(walk)),)


def steer(walk: Walk) -> Direction:
    """A random direction of the model's width."""
    width = walk.loaded.facts.hidden_size or 1
    return Direction("random", 0, floats([walk.random.gauss(0, 1) for _ in range(width)], (width,)))


def finished(walk: Walk, command: Command) -> Command:
    """A command for a batch that ended."""
    walk.stay(protocol.AdvanceBatch(), None)
    return command


def stopped(walk: Walk, command: Command) -> Command:
    """A command for a prefill that was cancelled."""
    walk.do(protocol.Prefill(walk.text(40), chat=False, step_size=8), walk.random.randint(1, 3))
    return command


BEFORE = {
    "AddLanes": "StartBatch", "AdvanceBatch": "StartBatch", "CompareBatch": "StartBatch", "RemoveLane": "StartBatch",
    "DiffText": "OpenLockstep", "FollowSecond": "ReadLockstep", "PartWays": "OpenLockstep", "GoOnBeams": "SearchBeams",
    "ReadLockstep": "OpenLockstep", "VerifySpeculation": "RunRounds", "Train": "BeginTraining",
}  # fmt: skip
"""What a command needs to have something to do."""
MAKERS: dict[str, Callable[[Walk], Command]] = {
    "AddLanes": lambda walk: protocol.AddLanes((LanePrompt(walk.text(3)),)),
    "AddTurn": lambda walk: protocol.AddTurn(
        walk.text(3), (*walk.session.conversation[0], Message("assistant", "ran")), differing="path"
    ),
    "AdvanceBatch": lambda walk: protocol.AdvanceBatch(steps=2),
    "Attribute": lambda walk: protocol.Attribute(walk.node, (walk.token, walk.token)),
    "BeginTraining": lambda walk: protocol.BeginTraining(
        TrainingSettings(layers=1, width=16, vocabulary=257)
    ),
    "CheckToolCall": lambda walk: protocol.CheckToolCall(walk.node),
    "Choose": lambda walk: protocol.Choose(walk.node, walk.token),
    "CloseLockstep": lambda walk: protocol.CloseLockstep(),
    "CompareBatch": lambda walk: finished(walk, protocol.CompareBatch()),
    "CompareKV": lambda walk: protocol.CompareKV(bits=(8,), group_size=32),
    "ReadMachine": lambda walk: protocol.ReadMachine(),
    "CaptureMetal": lambda walk: protocol.CaptureMetal("x.gputrace"),
    "Configure": lambda walk: protocol.Configure(
        Settings(temp=walk.random.choice((0.0, 1.0)), seed=walk.token, max_tokens=6, candidates=8)
    ),
    "CutText": lambda walk: protocol.CutText(LoadSettings(), walk.text(3)),
    "DiffText": lambda walk: protocol.DiffText(walk.text(20)),
    "DrawMany": lambda walk: protocol.DrawMany(3, walk.node, tokens=2),
    "Explain": lambda walk: protocol.Explain(walk.node),
    "ExplainSecond": lambda walk: protocol.ExplainSecond(walk.node),
    "FindTokens": lambda walk: protocol.FindTokens(walk.session.node, "dog"),
    "FollowSecond": lambda walk: protocol.FollowSecond(walk.session.node),
    "GoOnBeams": lambda walk: protocol.GoOnBeams(steps=1),
    "GoOnPrefill": lambda walk: stopped(walk, protocol.GoOnPrefill()),
    "HoldInterventions": lambda walk: protocol.HoldInterventions(walk.on_path, intervention(walk)),
    "Insert": lambda walk: protocol.Insert(walk.node, " dog"),
    "Intervene": lambda walk: protocol.Intervene(
        walk.node, intervention(walk), walk.random.choice(("token", "path"))
    ),
    "Load": lambda walk: protocol.Load(walk.loaded.settings),
    "LoadDraft": lambda walk: protocol.LoadDraft(speculation(walk)),
    "LookAhead": lambda walk: protocol.LookAhead(walk.node, (walk.token, walk.token), tokens=2),
    "MakeDirection": lambda walk: protocol.MakeDirection(0, (walk.text(3),), (walk.text(4),)),
    "MeasureRanks": lambda walk: protocol.MeasureRanks(),
    "MeasureRoofline": lambda walk: protocol.MeasureRoofline(),
    "MoveTo": lambda walk: protocol.MoveTo(walk.node),
    "OpenLockstep": lambda walk: protocol.OpenLockstep(walk.loaded.settings),
    "PartWays": lambda walk: protocol.PartWays(walk.node, tokens=2),
    "PatchActivations": lambda walk: protocol.PatchActivations(*walk.two_of_a_depth, walk.token, walk.token),
    "PatchPairs": lambda walk: protocol.PatchPairs((protocol.PatchPair("a dog ran", "a cat ran"),)),
    "Prefill": lambda walk: protocol.Prefill(walk.text(30), chat=False),
    "PreviewPrompt": lambda walk: protocol.PreviewPrompt(walk.text(4), chat=False),
    "Profile": lambda walk: protocol.Profile(repeats=1),
    "Race": lambda walk: protocol.Race(first=8, last=10),
    "ReadAttention": lambda walk: protocol.ReadAttention(walk.node),
    "ReadExperts": lambda walk: protocol.ReadExperts(walk.node),
    "ReadGradients": lambda walk: protocol.ReadGradients(walk.node),
    "ReadGrammar": lambda walk: protocol.ReadGrammar(walk.node),
    "ReadLens": lambda walk: protocol.ReadLens(walk.node),
    "ReadLockstep": lambda walk: protocol.ReadLockstep(walk.on_path),
    "ReadLogits": lambda walk: protocol.ReadLogits(),
    "ReadModules": lambda walk: protocol.ReadModules(),
    "ReadTriangle": lambda walk: protocol.ReadTriangle(walk.node, 0, 0),
    "Recall": lambda walk: protocol.Recall(walk.some_of_the_path),
    "RemoveLane": lambda walk: protocol.RemoveLane(0),
    "RepeatReply": lambda walk: protocol.RepeatReply(walk.node, 7, ids=(walk.token,)),
    "Reroll": lambda walk: protocol.Reroll(),
    "Restore": lambda walk: protocol.Restore(walk.grown, walk.on_path),
    "Run": lambda walk: protocol.Run(until=Breakpoints(tokens=3)),
    "ResumeTraining": lambda walk: protocol.ResumeTraining(os.devnull),
    "RunRounds": lambda walk: protocol.RunRounds(speculation(walk), until=Breakpoints(tokens=3)),
    "ReadScore": lambda walk: protocol.ReadScore(walk.node, 0, 0),
    "SaveCheckpoint": lambda walk: protocol.SaveCheckpoint(os.devnull),
    "ScoreHeads": lambda walk: protocol.ScoreHeads(walk.node),
    "SearchBeams": lambda walk: protocol.SearchBeams(BeamSettings(width=2, max_tokens=3), steps=2),
    "StartBatch": lambda walk: protocol.StartBatch((LanePrompt(walk.text(3)), LanePrompt("Once")), steps=2),
    "TakeStep": lambda walk: protocol.TakeStep(),
    "SweepHeads": lambda walk: protocol.SweepHeads(walk.node),
    "SweepStrengths": lambda walk: protocol.SweepStrengths(
        walk.node, steer(walk), 0, walk.random.choice(("token", "context")), strengths=(1.0,)
    ),
    "Take": lambda walk: protocol.Take(walk.node, (walk.token, walk.token)),
    "TakeRound": lambda walk: protocol.TakeRound(speculation(walk), inside=walk.random.random() < 0.5),
    "TakeApart": lambda walk: protocol.TakeApart(walk.text(3)),
    "Tokenize": lambda walk: protocol.Tokenize(" dog"),
    "Train": lambda walk: protocol.Train(steps=2),
    "TryPosition": lambda walk: protocol.TryPosition(walk.node, "path", 3),
    "Verify": lambda walk: protocol.Verify(),
    "VerifySpeculation": lambda walk: protocol.VerifySpeculation(walk.on_path),
    "WhatIf": lambda walk: protocol.WhatIf(Settings(temp=0.5), walk.session.node),
}
"""One of each command that the engine has."""


def test_the_walks_know_every_command() -> None:
    assert set(MAKERS) == set(COMMANDS) - {
        "Cancel"
    }  # which no handler sees: it sets the event of another command
    assert set(MAKERS) >= MOVING


@pytest.mark.wide(2)
@pytest.mark.parametrize("kind", KINDS_OF_CACHE)
def test_no_command_replaces_a_row_that_is_kept(zoo: Zoo, kind: str) -> None:
    name, options = KINDS_OF_CACHE[kind]
    walk = Walk(zoo.load(name, **options), 1)
    kinds = [*(set(MAKERS) - (APART if kind != "plain" else set())), *["Recall", "TakeStep", "MoveTo"] * 4]
    for each in walk.random.sample(kinds, len(kinds)):
        walk.go(each)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", KINDS_OF_CACHE)
def test_no_command_replaces_a_kept_row_on_a_long_walk(zoo: Zoo, kind: str, seed: int) -> None:
    name, options = KINDS_OF_CACHE[kind]
    walk = Walk(zoo.load(name, **options), seed)
    for each in walk.random.choices(sorted(MAKERS), k=300):
        walk.go(each)


def prompted(zoo: Zoo, steps: int, **options: Any) -> tuple[Session, list[int]]:
    """A session with quantized KV after a prompt and some steps, and the prompt's ids."""
    session = Session(zoo.load("llama", **QUANTIZED, **options), Settings(temp=0.0))
    ids = list(range(100, 130))
    list(session.prefill("", ids))
    for _ in range(steps):
        session.step()
    return session, ids


def test_rows_that_are_computed_again_behind_tokens_of_a_prompt_are_those_of_the_path(zoo: Zoo) -> None:
    """The rest of the prompt must not run as a chunk of its own."""
    session, ids = prompted(zoo, 8)
    path = session.tree.nodes(session.node)
    rows = {node: session.kept_logits.get(node) for node in path[len(ids) :]}
    session.kept_logits = KeptLogits(2**30)
    session.recall((path[10], path[20], *rows))
    for node, row in rows.items():
        again = session.row_at(node)
        assert row is not None
        assert again is not None
        assert np.abs(again - row).max() <= ROUNDING


def test_a_step_after_a_cancelled_move_is_that_of_the_path(zoo: Zoo) -> None:
    """The cache then holds the tokens that both paths share, which end inside the prompt."""
    session, ids = prompted(zoo, 2, kept_kv_mib=0)
    end = session.node
    list(session.prefill("", [*ids[:10], *range(200, 220)]))
    other = session.node
    session.kept_logits = KeptLogits(2**30)
    with pytest.raises(Cancelled):
        session.move(end, AfterPolls(1).is_set)
    assert (session.node, session.kv.offset) == (other, 10)
    session.step()
    assert session.verify().largest_difference <= ROUNDING


def test_two_equal_models_agree_over_a_path_that_was_stepped(zoo: Zoo) -> None:
    """Both read it as it was cut: the prompt in chunks, what was stepped token by token."""
    walk = Walk(zoo.load("llama", **QUANTIZED), 2)
    walk.do(protocol.OpenLockstep(walk.loaded.settings))
    walk.session.kept_logits = KeptLogits(0)
    spans = [
        span
        for record in walk.do(protocol.ReadLockstep(walk.session.node))
        if isinstance(record, protocol.LockstepRead)
        for span in record.spans
    ]
    decoded = spans[-4:]
    stated = [record.logprob for record in walk.found if isinstance(record, protocol.Step)]
    assert [span.logprob for span in decoded] == pytest.approx(stated, abs=ROUNDING)
    assert [span.other_logprob for span in decoded] == pytest.approx(stated, abs=ROUNDING)


def test_plain_steps_are_compared_from_the_end_of_the_prompt_on(zoo: Zoo) -> None:
    """A node inside the prompt is no place to take steps from."""
    session, ids = prompted(zoo, 4)
    verified = compare_with_plain(session, session.tree.nodes(session.node)[10], never)
    assert (verified.tokens, session.tree[verified.begin].depth) == (4, len(ids))
    assert verified.difference <= ROUNDING


@pytest.mark.parametrize(("options", "differs"), [(QUANTIZED, True), ({}, False)])
def test_what_is_said_of_a_token_inside_a_prompt_names_the_other_cut(
    zoo: Zoo, options: dict[str, Any], differs: bool
) -> None:
    """Its logits are those of a prompt that ends there: the prompt logprob there is another where the cut matters."""
    walk = Walk(zoo.load("llama", **options), 3)
    node = walk.session.tree.nodes(walk.session.node)[10]
    walk.do(protocol.Recall((node,)))
    ahead = protocol.LookAhead(node, (5,), tokens=1)
    for command in (protocol.FindTokens(node, "dog"), ahead, protocol.DrawMany(2, node, tokens=2)):
        said = "".join(getattr(record, "note", "") for record in walk.do(command))
        assert (CUT_NOTE in said) == differs, command
    (found, _) = walk.do(protocol.FindTokens(walk.session.node, "dog"))
    assert isinstance(found, protocol.TokensFound)
    assert found.note == ""
