"""The second model: the memory that it needs, loading it beside the first, and how both are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event

from msgspec import Struct
from msgspec.structs import replace

from engine.errors import Cancelled, LoadError
from engine.lockstep.spans import first_difference
from engine.memory import size_words
from engine.model import directory
from engine.model.facts import float32_scales, free_bytes, unpacked_by_itself, unpacks
from engine.model.load import Loaded, load, resolve
from engine.models_on_disk.facts import stored_weights
from engine.protocol import (
    Alignment,
    ChatOptions,
    Loading,
    LockstepMemory,
    LockstepOpened,
    Measuring,
    Message,
    OpenLockstep,
)

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
OVERHEAD = 1.1
"""Weights and what runs beside them: KV, buffers; as the models on the disk are judged."""
Emit = Callable[[LockstepMemory | Measuring | LockstepOpened], None]


class Second(Struct, frozen=True):
    """The second model, and how it is compared with the first."""

    loaded: Loaded
    aligned: Alignment
    system: str | None
    """System prompt that it gets instead of the conversation's; None for the same one."""
    title: str
    """Difference from the first model."""

    @property
    def prompted(self) -> bool:
        """True if it gets another prompt for the same conversation."""
        return self.system is not None

    def prompt(self, messages: Sequence[Message], options: ChatOptions) -> str:
        """A conversation of the first model's, as the second one gets it.

        Raises:
            PromptError: Its template refuses it.
        """
        if self.system is not None:
            system, rest = Message("system", self.system), messages
            if messages and messages[0].role == "system":
                system, rest = replace(messages[0], content=self.system), messages[1:]
            messages = (system, *rest)
        return self.loaded.tokens.chat(messages, options)

    def compared(self, first: Loaded) -> int | None:
        """Number of values of both models' rows that belong to tokens of both; None for all of each."""
        one, other = first.tokens.vocabulary, self.loaded.tokens.vocabulary
        return None if self.aligned == "bytes" or one == other else min(one, other)


def open_second(first: Loaded, command: OpenLockstep, emit: Emit, cancel: Event) -> Second:
    """Load the second model, once there is room for it.

    Args:
        first: The session's model; its weights are not touched.
        command: Settings of the second model.
        emit: Receives the memory that it needs, the progress, and facts about it.
        cancel: Stops the loading.

    Raises:
        LoadError: It can't be loaded, or doesn't fit beside the first; the message says why, the hint what to do.
        Cancelled: `cancel` was set.
    """
    _check(first, command)
    shared = command.bits is None and command.against == first.settings
    needed, free = 0 if shared else _weights(first, command, cancel), free_bytes()
    if free is not None and needed * OVERHEAD > free:
        raise LoadError(
            f"A second model of about {size_words(needed)} doesn't fit beside the first, which has "
            f"{size_words(first.facts.weight_bytes)}: {size_words(free)} are free.",
            "Compare with fewer bits, or close other programs.",
        )
    emit(LockstepMemory(first.facts.weight_bytes, needed, free))
    quantization = None if command.bits is None else (command.bits, command.group_size)

    def progress(loading: Loading) -> None:
        emit(Measuring("OpenLockstep", loading.done, loading.total, f"{loading.stage} {loading.detail}"))

    loaded = first if shared else load(command.against, progress, cancel, quantization)
    if cancel.is_set():
        raise Cancelled
    differs = first_difference(first.tokens, loaded.tokens) if not shared else None
    title = _title(first, command, loaded)
    second = Second(loaded, "ids" if differs is None else "bytes", command.system, title)
    facts = replace(loaded.facts, special=(), special_count=0, chat_template="")
    notes = tuple(_notes(first, second, differs))
    emit(LockstepOpened(facts, title, second.aligned, notes))
    return second


def _check(first: Loaded, command: OpenLockstep) -> None:
    if command.bits is None:
        return
    if command.bits not in BITS or command.group_size not in GROUP_SIZES:
        raise LoadError(
            f"A model can't be quantized to {command.bits} bits in groups of {command.group_size}.",
            f"Bits are {', '.join(map(str, BITS))}, group sizes {', '.join(map(str, GROUP_SIZES))}.",
        )
    same = command.against.model == first.settings.model
    if same and (how := first.facts.quantized):
        raise LoadError(
            f"The weights of {first.facts.name} are quantized already ({how}).",
            "Open the model that it was made from, and compare that one.",
        )


def _title(first: Loaded, command: OpenLockstep, loaded: Loaded) -> str:
    """The difference of the second model from the first."""
    parts = [loaded.facts.name]
    if loaded.facts.quantized and loaded.facts.quantized != first.facts.quantized:
        parts.append(loaded.facts.quantized.removesuffix(", affine"))
    if command.against.adapter_path is not None:
        parts.append(f"adapter {Path(command.against.adapter_path).name}")
    if command.system is not None:
        parts.append("another system prompt")
    if len(parts) == 1 and loaded.facts.name == first.facts.name:
        parts.append("the same again" if loaded is first else loaded.facts.dtype)
    return ", ".join(parts)


def _notes(first: Loaded, second: Second, differs: int | None) -> Iterator[str]:
    mine, theirs = first.tokens, second.loaded.tokens
    if differs is not None:
        yield (
            f"The tokenizers differ (first at id {differs}): the text is compared between common borders, by logprob; "
            "KL, ranks and top tokens need the same tokens."
        )
        if second.prompted:
            yield "Its other system prompt is not used: two prompts need the same tokens."
    elif (compared := second.compared(first)) is not None:
        rows = f"{mine.vocabulary:,} and {theirs.vocabulary:,}"
        yield f"The models have {rows} rows of logits: the {compared:,} that both have are compared."
    if second.loaded is not first:
        yield from (f"Of the second model: {note}" for note in second.loaded.facts.notes)


def _weights(first: Loaded, command: OpenLockstep, cancel: Event) -> int:
    """Bytes of the second model's weights in memory, from the headers of its files."""
    path = resolve(command.against.model, lambda _: None, cancel)
    files = sorted(path.glob(directory.WEIGHTS))
    wide = 4 if first.facts.dtype == "float32" else 2
    if command.bits is None:
        held = sum(file.stat().st_size for file in files)
        config = directory.read_object(path / "config.json")
        packed = "quantization" in config or "quantization_config" in config
        doubled = wide == 4 and not packed and config.get("torch_dtype", config.get("dtype")) != "float32"
        if packed and first.facts.blas and unpacked_by_itself(command.against):
            parameters = stored_weights(directory.read_weights(path, files), config).parameters
            return 4 * parameters if unpacks(parameters) else held
        return held * 2 if doubled and command.against.dtype == "auto" else held
    shapes = [entry.shape for entry in directory.read_weights(path, files).values()]
    if float32_scales(command.against):
        wide = 4
    matrix = command.bits / 8 + 2 * wide / command.group_size
    return int(sum(math.prod(shape) * (matrix if len(shape) > 1 else wide) for shape in shapes))
