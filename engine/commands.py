"""What an engine can be asked to do: values of plain fields, which carry their own facts and a number.

Every command but `Cancel` is answered by records and closed by one `records.Ended` of its number, after a
`records.Failure` where it could not be carried out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

from engine.beam_settings import BeamSettings
from engine.breakpoints import Breakpoints
from engine.records import Origin
from engine.settings import LoadSettings, Settings
from engine.sweep_settings import SweepSettings

_number = count(1).__next__


@dataclass(slots=True)
class Command:
    """Base of all commands."""

    kind: ClassVar[str]
    """Its name in records, traces and messages; the class's own unless it says otherwise."""
    needs_model: ClassVar[bool] = True
    """Whether it is refused while no model is loaded."""
    stoppable: ClassVar[bool] = False
    """Whether escape on the main screen stops it."""
    aside: ClassVar[bool] = False
    """Whether it needs no forward, so that it is answered between the steps of a run."""
    id: int = field(default_factory=_number, repr=False, compare=False, kw_only=True)
    """Unique in the process that asks."""

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__dict__.get("kind", cls.__name__)


@dataclass(slots=True)
class Cancel(Command):
    """Stop another command, queued or running, at its next chunk or step; nothing answers this one.

    A command that has ended is not touched, and no other can be: the number is the target's own.
    """

    needs_model: ClassVar[bool] = False
    target: int
    """The `id` of that command."""


@dataclass(slots=True)
class Load(Command):
    """Load a model; answered by `Loading` records and one `ModelFacts`."""

    needs_model: ClassVar[bool] = False
    settings: LoadSettings


@dataclass(slots=True)
class Prefill(Command):
    """Begin a new tree with a prompt; answered by `PromptOpened`, `PrefillChunk` and `Prefilled`."""

    stoppable: ClassVar[bool] = True
    text: str
    chat: bool
    """Through the model's chat template, as a user's message."""
    system: str | None = None
    echo: bool | None = None
    """Prompt logprobs: None for up to 2,048 tokens, True always, False never."""
    step_size: int | None = None
    """Tokens a chunk, None for as many as take about 100 ms."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A node of a tree that is to be built anew, behind the prompt."""

    node: int
    parent: int
    id: int
    origin: Origin
    has_step: bool
    """Whether its step was told; beams' nodes may not have been stepped."""


@dataclass(slots=True)
class Restore(Command):
    """Build a recorded session's tree anew and stand at one of its nodes.

    Nodes keep their numbers. Only the path to the node goes through the model; answered by `Restoring` records and one
    `Restored`.
    """

    prompt: tuple[int, ...]
    """Token ids, nodes 1 and on."""
    nodes: tuple[Grown, ...]
    """In the order of their numbers."""
    node: int
    """Where to stand."""
    rerolls: tuple[tuple[int, int], ...] = ()
    """Nodes after which was drawn more than once, and how often again."""


@dataclass(slots=True)
class GoOnPrefill(Command):
    """Go on with a prefill that was cancelled; answered by `PrefillChunk` and `Prefilled`."""

    stoppable: ClassVar[bool] = True
    step_size: int | None = None
    """Tokens a chunk from here on; None leaves it as it is."""


@dataclass(slots=True)
class TakeStep(Command):
    """Take the token that the sampler picked and run it through the model; answered by `Step`."""

    kind: ClassVar[str] = "Step"
    stoppable: ClassVar[bool] = True


@dataclass(slots=True)
class Run(Command):
    """Step until a stop or a cancel."""

    stoppable: ClassVar[bool] = True
    pace: float | None = None
    """Steps a second at most, None for as fast as it goes."""
    until: Breakpoints | None = None
    """Where to stop beside the settings' own stops; answered by `BreakpointHit` where one did."""
    over_sure: bool = False
    """Stop too where the token to come is not sure (`engine.breakpoints.UNSURE`)."""
    goes_on: bool = False
    """The run before, cancelled and taken up again at another pace: what its breakpoints counted stays."""


@dataclass(slots=True)
class Choose(Command):
    """Take a token after node `node`, wherever the cache stands; answered by `Moved`, if it had to, and `Step`."""

    stoppable: ClassVar[bool] = True
    node: int
    token: int
    """Its id."""


@dataclass(slots=True)
class MoveTo(Command):
    """Put the cache at a node of the tree; answered by `Moved`.

    Tokens on the way that were never stepped (those of beams) are stepped now, each answered by `Step`.
    """

    stoppable: ClassVar[bool] = True
    node: int


@dataclass(slots=True)
class Insert(Command):
    """Put a text after node `node`, on a branch of its own; answered by one `Step` a token."""

    stoppable: ClassVar[bool] = True
    node: int
    text: str


@dataclass(slots=True)
class Take(Command):
    """Take tokens by id after node `node`, on a branch of their own; answered by one `Step` a token."""

    stoppable: ClassVar[bool] = True
    node: int
    ids: tuple[int, ...]
    origin: Origin = "chosen"


@dataclass(slots=True)
class Tokenize(Command):
    """Tell how a text would be cut into tokens; answered by `Tokenized`. An aside."""

    aside: ClassVar[bool] = True
    text: str


@dataclass(slots=True)
class FindTokens(Command):
    """Search the vocabulary at a node, from kept logits; answered by `TokensFound`. An aside."""

    aside: ClassVar[bool] = True
    node: int
    query: str
    """Part of a token's text; `#123` for an id; `0x e2 9c` for bytes."""
    limit: int = 100


@dataclass(slots=True)
class LookAhead(Command):
    """Tell what greedy decoding would bring after some candidates; answered by `LookedAhead` records.

    The session stays where it is and nothing is added to its tree.
    """

    node: int
    """The candidates stand after it."""
    ids: tuple[int, ...]
    tokens: int = 8


@dataclass(slots=True)
class Configure(Command):
    """Use other settings from here on; answered by `Resampled` where a prompt is loaded."""

    needs_model: ClassVar[bool] = False
    settings: Settings


@dataclass(slots=True)
class Reroll(Command):
    """Draw again at the tip; answered by `Resampled`."""

    stoppable: ClassVar[bool] = True


@dataclass(slots=True)
class Verify(Command):
    """Recompute the path from nothing and compare; answered by `Verified`."""

    stoppable: ClassVar[bool] = True


@dataclass(slots=True)
class Explain(Command):
    """Tell the sampler stage by stage after a node, from kept logits; answered by `Explained`.

    An aside: it is answered between the steps of a run.
    """

    aside: ClassVar[bool] = True
    node: int
    """The node before the token in question: its distribution is told."""
    settings: Settings | None = None
    """Other settings to try with the same draw; None for those that were used."""


@dataclass(slots=True)
class WhatIf(Command):
    """Which steps up to a node would have gone otherwise under other settings; answered by `WhatIfAnswered`.

    An aside: it is answered between the steps of a run.
    """

    aside: ClassVar[bool] = True
    settings: Settings
    tip: int


@dataclass(slots=True)
class Recall(Command):
    """Compute the logits after some nodes of one path again, beside the live cache; answered by `Recalled`."""

    stoppable: ClassVar[bool] = True
    nodes: tuple[int, ...]


@dataclass(slots=True)
class SearchBeams(Command):
    """Search with beams from where the session stands; answered by `BeamOpened`, `BeamStep` records and `BeamEnded`.

    A search that was cancelled, or ended at `steps`, waits for `GoOnBeams` until the next prompt, model or search.
    """

    settings: BeamSettings
    steps: int | None = None
    """Steps to take, None for all."""


@dataclass(slots=True)
class Sweep(Command):
    """Measure the model's speed and memory point by point; answered by `Measuring` records and one `Swept`."""

    settings: SweepSettings


@dataclass(slots=True)
class GoOnBeams(Command):
    """Go on with the search that waits; answered by `BeamStep` records and, at its end, `BeamEnded`."""

    steps: int | None = None
    """Steps to take, None for all."""


@dataclass(slots=True)
class Measure(Command):
    """Base of what measures beside the session; answered by `Measuring` records and those that each one names."""


@dataclass(slots=True)
class Race(Measure):
    """Race with a KV cache and without one; answered by `RaceOpened`, `RaceStep` records and `RaceEnded`."""

    first: int = 16
    """Tokens of the sequence before the first step that is measured."""
    last: int = 128
    """Tokens after the last; at most the context window."""


@dataclass(slots=True)
class Profile(Measure):
    """Take the next step apart with fences; answered by one `Profiled`."""

    repeats: int = 5
    """Counted rounds, after the warm-up."""


@dataclass(slots=True)
class MeasureRoofline(Measure):
    """Set prefill and decode against the machine's limits; answered by one `RooflineMeasured`."""


@dataclass(slots=True)
class CompareKV(Measure):
    """Compute the path with quantized KV caches; answered by `KVCompared` after each precision."""

    bits: tuple[int, ...] = (8, 4)
    group_size: int | None = None
    """None for 64, or 32 where the heads are smaller."""
