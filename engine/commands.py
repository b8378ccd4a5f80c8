"""The commands of an engine: frozen values of plain fields, with an id; their classes declare how to treat them.

The engine answers every command but `Cancel` with records. The last of them is one `records.Ended` with the command's
id, after a `records.Failure` with the same id where the command failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar, Literal

from engine.beam_settings import BeamSettings
from engine.breakpoints import Breakpoints
from engine.records import NO_OPTIONS, ChatOptions, Message, Origin
from engine.settings import LoadSettings, Settings
from engine.sweep_settings import SweepSettings

_next_id = count(1).__next__


@dataclass(frozen=True, slots=True)
class Command:
    """Base of all commands. Two commands with equal fields are equal: their ids are not compared."""

    kind: ClassVar[str]
    """Its name in records, traces and messages; the name of the class unless the class body sets another one."""
    needs_model: ClassVar[bool] = True
    """Whether the engine refuses it while no model is loaded."""
    stoppable: ClassVar[bool] = False
    """Whether escape on the main screen cancels it."""
    aside: ClassVar[bool] = False
    """Whether the engine may answer it between the steps of a run: it needs no forward and changes nothing."""
    id: int = field(default_factory=_next_id, repr=False, compare=False, kw_only=True)
    """Unique in the process that sends the command."""

    def __init_subclass__(cls) -> None:
        # Called twice for each class, since `slots=True` makes a second class from the first one's body, which by then
        # has the `kind` of the first call. A subclass never inherits the kind of its base.
        cls.kind = cls.__dict__.get("kind", cls.__name__)


@dataclass(frozen=True, slots=True)
class Cancel(Command):
    """Stop another command, queued or running, at its next chunk or step; no record answers this one.

    Where the target has ended before, nothing happens; it can't cancel another command, since ids are not reused.
    """

    needs_model: ClassVar[bool] = False
    target: int
    """The `id` of that command."""


@dataclass(frozen=True, slots=True)
class Load(Command):
    """Load a model; answered by `Loading` records and one `ModelFacts`."""

    needs_model: ClassVar[bool] = False
    settings: LoadSettings


@dataclass(frozen=True, slots=True)
class Prefill(Command):
    """Add a prompt to the tree and go to its end; answered by `PromptOpened`, `PrefillChunk` and `Prefilled`."""

    stoppable: ClassVar[bool] = True
    text: str
    chat: bool
    """Through the model's chat template, as a user's message."""
    system: str | None = None
    echo: bool | None = None
    """Prompt logprobs: None for up to 2,048 tokens, True always, False never."""
    step_size: int | None = None
    """Tokens a chunk, None for as many as take about 100 ms."""
    messages: tuple[Message, ...] = ()
    """A whole conversation, in place of `text` and `system`."""
    options: ChatOptions = NO_OPTIONS
    """What else the chat template gets."""
    cache_file: str = ""
    """A KV cache that mlx_lm.cache_prompt saved, to go on from; `text` follows what it holds."""
    cached_text: str = ""
    """The prompt that mlx_lm.cache_prompt was given for it: the file has no token ids."""


@dataclass(frozen=True, slots=True)
class PreviewPrompt(Command):
    """Cut a prompt as a `Prefill` of these fields would, and change nothing; answered by `PromptPreview`. An aside."""

    aside: ClassVar[bool] = True
    text: str
    chat: bool
    system: str | None = None
    messages: tuple[Message, ...] = ()
    options: ChatOptions = NO_OPTIONS
    most: int = 400
    """Tokens that are handed out at most: of a longer prompt the first and the last ones."""


@dataclass(frozen=True, slots=True)
class AddTurn(Command):
    """Add the user's next turn after the current node, and go to its end.

    Answered by `PromptOpened`, `PrefillChunk` and `Prefilled`; or by `TurnDiffers` alone, where the template would
    write the conversation so far in another way and `differing` is `ask`.
    """

    stoppable: ClassVar[bool] = True
    text: str
    history: tuple[Message, ...]
    """The conversation up to the model's last answer, which the path has."""
    options: ChatOptions = NO_OPTIONS
    echo: bool | None = None
    """Prompt logprobs: None for up to 2,048 tokens, True always, False never."""
    differing: Literal["ask", "path", "template"] = "ask"
    """`path` adds the turn to the path as it is, `template` begins a prompt with the template's own text."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A node of a tree that is to be rebuilt."""

    node: int
    parent: int
    id: int
    origin: Origin
    has_step: bool
    """Whether it has a `Step` record; nodes of beams may not have been stepped."""
    prompt_begin: int = 0
    """Of a prompt's token: tokens of the path before the prompt."""


@dataclass(frozen=True, slots=True)
class Restore(Command):
    """Rebuild a recorded session's tree and move to one of its nodes.

    Nodes keep their numbers. Only the path to the node runs through the model; answered by `Restoring` records and one
    `Restored`.
    """

    nodes: tuple[Grown, ...]
    """In the order of their numbers."""
    node: int
    """The node to move to."""
    rerolls: tuple[tuple[int, int], ...] = ()
    """Nodes with a re-roll count above 0, and that count."""


@dataclass(frozen=True, slots=True)
class GoOnPrefill(Command):
    """Continue a prefill that was cancelled; answered by `PrefillChunk` and `Prefilled`."""

    stoppable: ClassVar[bool] = True
    step_size: int | None = None
    """Tokens a chunk from here on; None changes nothing."""


@dataclass(frozen=True, slots=True)
class TakeStep(Command):
    """Take the token that the sampler picked and run it through the model; answered by `Step`."""

    kind: ClassVar[str] = "Step"
    stoppable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Run(Command):
    """Step until a stop or a cancel."""

    stoppable: ClassVar[bool] = True
    pace: float | None = None
    """Steps a second at most, None for no limit."""
    until: Breakpoints | None = None
    """Breakpoints in addition to the settings' own stops; answered by `BreakpointHit` where one stops the run."""
    over_sure: bool = False
    """Stop, too, where the next token is not sure (`engine.breakpoints.UNSURE`)."""
    goes_on: bool = False
    """It continues the run before, which was cancelled for another pace: its breakpoints keep their counts."""


@dataclass(frozen=True, slots=True)
class Choose(Command):
    """Take a token after node `node`; answered by `Moved`, unless it is the current node, and `Step`."""

    stoppable: ClassVar[bool] = True
    node: int
    token: int
    """Its id."""


@dataclass(frozen=True, slots=True)
class MoveTo(Command):
    """Move the session to a node of the tree; answered by `Moved`.

    Tokens of the path that were never stepped (those of beams) are stepped now, each answered by `Step`.
    """

    stoppable: ClassVar[bool] = True
    node: int


@dataclass(frozen=True, slots=True)
class Insert(Command):
    """Insert a text after node `node`, as a branch; answered by one `Step` a token."""

    stoppable: ClassVar[bool] = True
    node: int
    text: str


@dataclass(frozen=True, slots=True)
class Take(Command):
    """Take tokens by id after node `node`, as a branch; answered by one `Step` a token."""

    stoppable: ClassVar[bool] = True
    node: int
    ids: tuple[int, ...]
    origin: Origin = "chosen"


@dataclass(frozen=True, slots=True)
class Tokenize(Command):
    """Cut a text into tokens without taking them; answered by `Tokenized`. An aside."""

    aside: ClassVar[bool] = True
    text: str


@dataclass(frozen=True, slots=True)
class CutText(Command):
    """Cut a text by a model's tokenizer alone: its weights are not read, and a loaded model stays as it is.

    Answered by `Loading` records and one `Tokenized`, whose text has the chat template in it.
    """

    needs_model: ClassVar[bool] = False
    settings: LoadSettings
    text: str
    chat: bool = False
    """Through the model's chat template, as a user's message."""
    system: str | None = None
    messages: tuple[Message, ...] = ()
    """A whole conversation, in place of `text` and `system`."""
    options: ChatOptions = NO_OPTIONS
    """What else the chat template gets."""


@dataclass(frozen=True, slots=True)
class FindTokens(Command):
    """Search the vocabulary at a node, from kept logits; answered by `TokensFound`. An aside."""

    aside: ClassVar[bool] = True
    node: int
    query: str
    """Part of a token's text; `#123` for an id; `0x e2 9c` for bytes."""
    limit: int = 100


@dataclass(frozen=True, slots=True)
class LookAhead(Command):
    """Decode greedily after some candidates; answered by `LookedAhead` records.

    The session doesn't move and nothing is added to its tree.
    """

    node: int
    """The node before the candidates."""
    ids: tuple[int, ...]
    tokens: int = 8


@dataclass(frozen=True, slots=True)
class Configure(Command):
    """Use other settings from here on; answered by `Resampled` where a prompt is loaded."""

    needs_model: ClassVar[bool] = False
    settings: Settings


@dataclass(frozen=True, slots=True)
class Reroll(Command):
    """Draw again after the current node; answered by `Resampled`."""

    stoppable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Verify(Command):
    """Recompute the path from nothing and compare; answered by `Verified`."""

    stoppable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Explain(Command):
    """Explain the sampler stage by stage after a node, from kept logits; answered by `Explained`.

    An aside: it is answered between the steps of a run.
    """

    aside: ClassVar[bool] = True
    node: int
    """The node before the token in question: its distribution is explained."""
    settings: Settings | None = None
    """Other settings to try with the same draw; None for those that were used."""


@dataclass(frozen=True, slots=True)
class WhatIf(Command):
    """Which steps up to a node would have picked other tokens under other settings; answered by `WhatIfAnswered`.

    An aside: it is answered between the steps of a run.
    """

    aside: ClassVar[bool] = True
    settings: Settings
    tip: int


@dataclass(frozen=True, slots=True)
class Recall(Command):
    """Recompute the logits after some nodes of one path, in separate caches; answered by `Recalled`."""

    stoppable: ClassVar[bool] = True
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SearchBeams(Command):
    """Search with beams from the current node; answered by `BeamOpened`, `BeamStep` records and `BeamEnded`.

    A search that was cancelled, or paused after `steps`, waits for `GoOnBeams` until the next prompt, model or search.
    """

    settings: BeamSettings
    steps: int | None = None
    """Steps to take, None for all."""


@dataclass(frozen=True, slots=True)
class Sweep(Command):
    """Measure the model's speed and memory point by point; answered by `Measuring` records and one `Swept`."""

    settings: SweepSettings


@dataclass(frozen=True, slots=True)
class GoOnBeams(Command):
    """Continue the paused search; answered by `BeamStep` records and, at its end, `BeamEnded`."""

    steps: int | None = None
    """Steps to take, None for all."""


@dataclass(frozen=True, slots=True)
class Measure(Command):
    """Base of measurements on separate caches; answered by `Measuring` records and those that the class names."""


@dataclass(frozen=True, slots=True)
class Race(Measure):
    """Race with a KV cache and without one; answered by `RaceOpened`, `RaceStep` records and `RaceEnded`."""

    first: int = 16
    """Tokens of the sequence before the first step that is measured."""
    last: int = 128
    """Tokens after the last; at most the context window."""


@dataclass(frozen=True, slots=True)
class Profile(Measure):
    """Measure the parts of the next step with fences; answered by one `Profiled`."""

    repeats: int = 5
    """Counted rounds, after the warm-up."""


@dataclass(frozen=True, slots=True)
class MeasureRoofline(Measure):
    """Compare prefill and decode with the machine's limits; answered by one `RooflineMeasured`."""


@dataclass(frozen=True, slots=True)
class CompareKV(Measure):
    """Compute the path with quantized KV caches; answered by `KVCompared` after each precision."""

    bits: tuple[int, ...] = (8, 4)
    group_size: int | None = None
    """None for 64, or 32 where the heads are smaller."""


def _kinds() -> dict[str, type[Command]]:
    """The classes above without the bases. `__subclasses__` would have each class twice, see `__init_subclass__`."""
    classes = [cls for cls in globals().values() if isinstance(cls, type) and issubclass(cls, Command)]
    return {cls.kind: cls for cls in classes if cls not in (Command, Measure)}


KINDS: Mapping[str, type[Command]] = _kinds()
"""Every command by its kind."""
