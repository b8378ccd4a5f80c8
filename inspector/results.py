"""The results of the Python interface: tokens, candidates, and views of the model's internals, with HTML for notebooks.

`record` of each result is the engine's whole record; the other names are the stable interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from xml.etree.ElementTree import Element

from engine import protocol
from engine.errors import StepError
from inspector.blocks.blocks import Bar, Block, Cell, Column, Table, TableRow
from inspector.blocks.page import element, notebook, written
from inspector.blocks.paint import plain_lines
from inspector.border import checked
from inspector.config.directions import write_direction
from inspector.display import quoted, token_label, visible
from inspector.documents import (
    attention,
    attribution,
    compare,
    experts,
    gradients,
    lens,
    modules,
    patching,
    positions,
    scores,
    steering,
)
from inspector.scales import counted, percent
from inspector.state.merges import ladder_lines, rung, rungs
from inspector.state.session_tree import Item

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Read = TypeVar("Read")
Layer = TypeVar("Layer", protocol.AttentionLayer, protocol.ExpertLayer)
MOST_SHOWN = 500
"""Maximum number of tokens of a text shown in a notebook."""


def table(heads: Sequence[str], rows: Iterable[tuple[Cell, ...]]) -> str:
    """A table as HTML for a notebook; its texts are printable."""
    return notebook([Table(tuple(map(Column, heads)), [*map(TableRow, rows)])])


def tokens_html(items: Sequence[Item]) -> str:
    """The last tokens of a text as HTML, darker for higher surprisal; tokens of a prompt are pale."""
    spans = ["… "] * (len(items) > MOST_SHOWN) + [_token(item) for item in items[-MOST_SHOWN:]]
    return written(element("div", *spans, style="font-family: monospace; white-space: pre-wrap"))


def _token(item: Item) -> Element:
    if not isinstance(item, protocol.Step):
        return element("span", item.text, style="opacity: 0.6")
    best = "\n".join(f"{quoted(visible(each.text))} {each.prob:.1%}" for each in top(item.choice, 5))
    style = f"background: rgba(220, 90, 30, {min(0.6, 0.06 * item.surprisal_bits):.2f})"
    return element("span", item.text, title=best, style=style)


def shown(items: Sequence[Item]) -> str:
    """The beginning of a text, for a cell of a table."""
    return visible("".join(item.text for item in items[:MOST_SHOWN]))


def check_number(what: str, number: int, count: int, of: str, shown: str = "") -> None:
    """Check a number from 0.

    Raises:
        StepError: It is out of range.
    """
    if not 0 <= number < count:
        hint = f"They count from 0: give 0 to {count - 1}{shown and f', {shown}'}." if count else ""
        raise StepError(f"There is no {what} {number}: {of} has {count or 'none'}.", hint)


# ---- tokens and candidates ---------------------------------------------------------------------


class Candidate(NamedTuple):
    """A token that could be next."""

    text: str
    prob: float
    """Probability by the model."""
    id: int


def top(distribution: protocol.Distribution, count: int) -> list[Candidate]:
    """The first candidates of a distribution; none for a count below 1."""
    return [Candidate(each.text, each.prob, each.id) for each in distribution.candidates[: max(0, count)]]


class Step:
    """A token that was taken, with the distribution that it was taken from.

    `record` is the engine's record (`engine.protocol.Step`). `segment` is the part of the reply that it belongs to:
    `thinking`, `answer`, `tool call`, or `markup` for the marks between them, which later tokens may change; None if
    it isn't known.
    """

    __slots__ = ("_session", "record", "segment")

    def __init__(
        self, record: protocol.Step, segment: str | None = None, session: object | None = None
    ) -> None:
        self.record, self.segment = record, segment
        self._session = session  # a stand-in, so that a stored step doesn't keep its session alive

    @property
    def index(self) -> int:
        """Its index in the completion, from 0."""
        return self.record.index

    @property
    def text(self) -> str:
        """The characters that it finished."""
        return self.record.text

    @property
    def id(self) -> int:
        """Its token id."""
        return self.record.id

    @property
    def prob(self) -> float:
        """The model's probability of it, 0 to 1, before the sampler."""
        return self.record.prob

    @property
    def logprob(self) -> float:
        """The natural logarithm of `prob`."""
        return self.record.logprob

    @property
    def rank(self) -> int:
        """Its rank by the model's probability, from 1."""
        return self.record.rank

    @property
    def sampler_prob(self) -> float:
        """Its probability after the sampler's stages."""
        return self.record.sampler_prob

    @property
    def entropy_bits(self) -> float:
        """The entropy of the model's distribution that it was taken from, in bits."""
        return self.record.choice.entropy_bits

    @property
    def surprisal_bits(self) -> float:
        """-log2 of `prob`."""
        return self.record.surprisal_bits

    @property
    def ms(self) -> float:
        """Milliseconds that the step took."""
        return self.record.ms.total

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and other.record is self.record

    def __hash__(self) -> int:
        return hash(self.record.node)

    def is_of(self, session: object) -> bool:
        """True if it belongs to the session with this stand-in."""
        return self._session is session

    @checked
    def top(self, count: int = 5) -> list[Candidate]:
        """The most probable tokens in its place, best first.

        Args:
            count: Number of tokens, at most the setting `candidates`.
        """
        return top(self.record.choice, count)

    def _repr_html_(self) -> str:
        rows = [
            (visible(each.text), percent(each.prob), Bar(each.prob), str(each.id)) for each in self.top(8)
        ]
        return table(("token", "model", "", "id"), rows)

    def __repr__(self) -> str:
        return f"<Step {self.index + 1} {quoted(visible(self.text))} {self.prob:.1%} rank {self.rank}>"


# ---- answers of the engine ---------------------------------------------------------------------


DOCUMENTS: Mapping[type, Callable[[Any, Sequence[Item]], Iterable[Block]]] = {
    protocol.AttentionRead: attention.document,
    protocol.AttributionRead: lambda read, path: attribution.document(read),
    protocol.ActivationsPatched: lambda read, path: patching.patched(read),
    protocol.ExpertsRead: lambda read, path: experts.document(read),
    protocol.GradientsRead: gradients.document,
    protocol.HeadsScored: lambda read, path: attention.roles(read),
    protocol.LensRead: lens.document,
    protocol.ModelModules: lambda read, path: modules.document(read),
    protocol.PairsPatched: lambda read, path: patching.over_pairs(read),
    protocol.PositionTried: lambda read, path: positions.document(read),
    protocol.ScoreRead: scores.document,
    protocol.StrengthsSwept: lambda read, path: steering.document(read),
}
"""The function that makes an answer's document for a notebook, by the class of its record."""


class _Result(Generic[Read]):
    """An answer of the engine; `record` is the whole answer.

    Args:
        record: The answer.
        path: The tokens of the path that it is about, if any.
    """

    def __init__(self, record: Read, path: Sequence[Item] = ()) -> None:
        self.record, self._path = record, path

    def _repr_html_(self) -> str | None:
        document = DOCUMENTS.get(type(self.record))
        return notebook(document(self.record, self._path)) if document is not None else None


class Answer(_Result[Read]):
    """An answer with the fields and methods of its `record`; see `engine.protocol`."""

    def __getattr__(self, name: str) -> Any:
        if name == "record":  # while a copy is being made
            raise AttributeError(name)
        return getattr(self.record, name)

    def __repr__(self) -> str:
        return "\n".join(plain_lines(DOCUMENTS[type(self.record)](self.record, self._path)))


class Sampler(_Result[protocol.Explained]):
    """The sampler's way to the next token, stage by stage.

    `record` has each candidate after each stage (`engine.protocol.Explained`).
    """

    @property
    def stages(self) -> dict[str, int]:
        """The active stages in order, each with the number of tokens that it keeps."""
        return {column.name: column.kept for column in self.record.columns}

    @property
    def picked(self) -> int:
        """The id of the token that is picked."""
        return self.record.next.picked

    @property
    def draw(self) -> float | None:
        """The random number of the draw, 0 to 1; None for greedy decoding."""
        return self.record.next.draw

    @checked
    def top(self, count: int = 5) -> list[Candidate]:
        """The most probable tokens before the sampler, best first."""
        return top(self.record.next, count)

    def _repr_html_(self) -> str:
        stages, best = self.record.columns, enumerate(self.record.next.candidates[:8])
        rows: list[tuple[Cell, ...]] = [
            (visible(each.text), percent(each.prob), Bar(each.prob),
             *("" if (value := stage.values[place]) is None else f"{value:.4g}" for stage in stages),
             percent(each.sampler_prob), Bar(each.sampler_prob))
            for place, each in best
        ]  # fmt: skip
        left = (f"{visible(each.name)}: {each.kept:,} left" for each in stages)
        return table(("token", "model", "", *left, "sampler", ""), rows)

    def __repr__(self) -> str:
        stages = ", ".join(f"{name} leaves {kept:,}" for name, kept in self.stages.items())
        texts = {each.id: f"“{each.text}”" for each in self.record.next.candidates}
        return f"<Sampler {stages or 'without stages'}; picked {texts.get(self.picked, self.picked)}>"


class OtherPick(NamedTuple):
    """The token that a step would have taken under other settings."""

    step: int
    """Number of the step, for `at`."""
    picked: int
    """Id of the token."""
    text: str


class WhatIf(_Result[protocol.WhatIfAnswered]):
    """The tokens that the same draws pick with other settings, each step after the unchanged path."""

    @property
    def differing(self) -> list[OtherPick]:
        """The steps with a different token."""
        steps = [item.node for item in self._path if isinstance(item, protocol.Step)]
        numbers = {node: number for number, node in enumerate(steps, 1)}
        other = [each for each in self.record.steps if not each.same]
        return [
            OtherPick(numbers[each.node], each.picked, each.text) for each in other if each.node in numbers
        ]

    def _repr_html_(self) -> str:
        rows = [(str(each.step), visible(each.text), str(each.picked)) for each in self.differing]
        return table(("step", "would be", "id"), rows)

    def __repr__(self) -> str:
        return f"<WhatIf {len(self.differing)} of {len(self.record.steps)} steps would differ>"


class Direction(_Result[protocol.Direction]):
    """A direction of the residual stream, for steering.

    `record` is the engine's record (`engine.protocol.Direction`).
    """

    @property
    def vector(self) -> npt.NDArray[np.float32]:
        """The vector, shape (width,)."""
        import numpy as np

        return np.array(self.record.vector.row(), np.float32)

    @checked
    def save(self, path: str | Path) -> None:
        """Save it to a file for `Branch.steer` and `--steer`; an existing file is replaced.

        Raises:
            PathError: The file can't be written.
        """
        write_direction(Path(path), self.record, force=True)

    def __repr__(self) -> str:
        return f"<Direction {self.record.label} of L{self.record.layer + 1}, #{self.record.digest}>"


Inside = TypeVar("Inside", bound=protocol.AttentionRead | protocol.ScoreRead)


class _OnPath(_Result[Inside]):
    """A view of the model's internals over the tokens of a path."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the path's tokens."""
        return tuple(item.text for item in self._path)

    @property
    def check(self) -> dict[str, tuple[float, float]]:
        """Checks against the model's own computation, each with its largest error and the allowed one."""
        return {each.name: (each.error, each.bound) for each in self.record.facts.checks}


class Attention(_OnPath[protocol.AttentionRead]):
    """The attention of each head of each layer from the last token of a branch.

    `record` is the engine's record (`engine.protocol.AttentionRead`).
    """

    @checked
    def weights(self, layer: int) -> npt.NDArray[np.float32]:
        """The weights of a layer over the whole path.

        Args:
            layer: Index of the layer, from 0.

        Returns:
            Shape (heads, tokens of the path); 0 for tokens that a head can't see.

        Raises:
            StepError: The layer has no attention, or its weights aren't known.
        """
        import numpy as np

        read = _read_layer(layer, self.record.layers, "attention")
        return np.array([read.over(head, self.record.tokens) for head in range(read.heads)], np.float32)

    def __repr__(self) -> str:
        return f"<Attention over {self.record.tokens} tokens, {len(self.record.layers)} layers>"


class Gradients(_Result[protocol.GradientsRead]):
    """The share of each token of the path in a logit, or in the difference of two.

    `record` is the engine's record (`engine.protocol.GradientsRead`).
    """

    def __init__(self, record: protocol.GradientsRead, path: Sequence[Item] = ()) -> None:
        super().__init__(record, path)
        self.shares = gradients.shares_of(record, path)
        """Shares in the order of the text, with `place`, `label`, `value` in logits, and `share` of the total size."""

    @property
    def residual(self) -> float | None:
        """Relative error of the shares' sum; None for gradient × input, which has no exact sum."""
        return self.record.residual

    @checked
    def top(self, count: int = 5) -> list[gradients.TokenShare]:
        """The shares with the largest absolute values."""
        return gradients.largest(self.shares)[: max(0, count)]

    def __repr__(self) -> str:
        words = ", ".join(f"{each.label} {each.value:+.2f}" for each in self.top(3))
        return f"<Gradients of {gradients.asked_words(self.record)}, {gradients.method_words(self.record)}: {words}>"


class Merges(_Result[protocol.TakenApart]):
    """The words of a text as a tokenizer cuts it, and the steps from each word to its tokens.

    `record` is the engine's record (`engine.protocol.TakenApart`).
    """

    @property
    def words(self) -> list[str]:
        """The words, as the tokenizer sees them."""
        return [b"".join(word.symbols).decode("utf-8", "replace") for word in self.record.words]

    @checked
    def ladder(self, word: int = 0) -> list[tuple[int | float | None, tuple[bytes, ...]]]:
        """The steps from a word to its tokens, each with its rank (or a unigram segmentation's logprob) and pieces.

        Args:
            word: Its index in `words`.

        Raises:
            StepError: There is no such word.
        """
        check_number("word", word, len(self.record.words), "the text")
        of = self.record.words[word]
        return [(each.value, each.pieces) for each in (rung(of, place) for place in range(rungs(of)))]

    def __repr__(self) -> str:
        return "\n".join(ladder_lines(self.record)).rstrip()


class Scores(_OnPath[protocol.ScoreRead]):
    """Why a head attends to a token: the share of each writer to the residual stream in its scores.

    `record` is the engine's record (`engine.protocol.ScoreRead`). A key is an index in the path, by default the one
    with the largest weight. Shares add up to the difference of its score from the mean over the keys, or from the score
    of the key `against`.
    """

    @property
    def weights(self) -> dict[int, float]:
        """The head's weight on each key."""
        return dict(zip(self.record.keys, self.record.weights.row(), strict=True))

    @checked
    def in_key(self, key: int | None = None, against: int | None = None) -> dict[str, float]:
        """The share of each writer to the key, by name, the largest first."""
        shares = scores.key_shares(self.record, self._key(key, against), against)
        return {each.name: each.value for each in shares}

    @checked
    def in_query(self, key: int | None = None, against: int | None = None) -> dict[str, float]:
        """The share of each writer to the query, by name, the largest first."""
        shares = scores.query_shares(self.record, self._key(key, against), against)
        return {each.name: each.value for each in shares}

    @checked
    def why(self, key: int | None = None, against: int | None = None) -> str:
        """The reason in a sentence."""
        labels = [quoted(token_label(text)) for text in self.texts]
        return scores.in_words(self.record, labels, self._key(key, against), against)

    def _key(self, key: int | None, against: int | None) -> int:
        """The given key, or else the one with the largest weight.

        Raises:
            StepError: The score of `key` or `against` isn't known.
        """
        key = scores.by_weight(self.record)[0] if key is None else key
        for each in (key, against):
            if each is not None and each not in self.record.keys:
                raise StepError(f"Token {each} is not among the keys.", "Name it in `keys` of `scores`.")
        return key

    def __repr__(self) -> str:
        return f"<Scores: {self.why()}>"


class Experts(_Result[protocol.ExpertsRead]):
    """The experts of each layer that the last token of a branch was routed to.

    `record` also has the states of recurrent layers (`engine.protocol.ExpertsRead`).
    """

    @checked
    def weights(self, layer: int) -> dict[int, float | None]:
        """The weight of each expert of a layer that ran, by its index from 0; None if unknown.

        Args:
            layer: Index of the layer, from 0.

        Raises:
            StepError: The layer has no experts.
        """
        read = _read_layer(layer, self.record.layers, "experts")
        return dict(zip(read.chosen, read.weights or [None] * len(read.chosen), strict=True))

    def __repr__(self) -> str:
        return f"<Experts of {len(self.record.layers)} layers, states of {len(self.record.states)}>"


class Moved(_Result[protocol.PositionTried]):
    """The prediction with changed positions; `record` is the engine's record (`engine.protocol.PositionTried`)."""

    @property
    def kl_bits(self) -> float:
        """Change of the distribution: KL(before || after), in bits."""
        return self.record.kl_bits

    @property
    def tokens(self) -> list[tuple[str, float, float]]:
        """The most probable tokens, each with its probability before and after."""
        return [(each.text, each.before, each.after) for each in self.record.tokens]

    def __repr__(self) -> str:
        return f"<Moved by {self.record.offset:+d}: {self.kl_bits:.3f} bits>"


class Lens(_Result[protocol.LensRead]):
    """The prediction of each layer after the last tokens of a branch, by the model's final norm and head.

    `record` is the engine's record (`engine.protocol.LensRead`).
    """

    @property
    def tokens(self) -> list[tuple[str, float]]:
        """The token that each layer would predict next, with its probability; the embedding comes first."""
        columns = self.record.columns
        return [(cell.top[0].text, cell.top[0].prob) for cell in columns[-1].cells] if columns else []

    def __repr__(self) -> str:
        return f"<Lens: {' '.join(repr(text) for text, _ in self.tokens)}>"


class Contributions(_Result[protocol.AttributionRead]):
    """The amount that each part of the model adds to a logit, or to the difference of two (direct logit attribution).

    `record` is the engine's record (`engine.protocol.AttributionRead`).
    """

    @property
    def parts(self) -> dict[str, float]:
        """The amount that each part adds, by name, in the order of the computation; they add up to the whole."""
        return {each.name: each.value for each in attribution.part_rows(self.record)}

    @property
    def heads(self) -> dict[str, float]:
        """The amount that each attention head adds, by name, as far as heads can be separated."""
        parts = attribution.part_rows(self.record)
        every = [each for part in parts for each in attribution.head_rows(self.record, part)]
        return {each.name: each.value for each in every if each.head != -1}

    def __repr__(self) -> str:
        best = sorted(self.parts.items(), key=lambda each: -abs(each[1]))[:3]
        words = ", ".join(f"{name} {value:+.2f}" for name, value in best)
        return f"<Contributions: {attribution.heading(self.record)}: {words}>"


class ModelMap(_Result[protocol.ModelModules]):
    """The modules of a model in the order of the computation; `record` has all (`engine.protocol.ModelModules`)."""

    @property
    def rows(self) -> list[dict[str, str | int]]:
        """A row for each module, one for equal layers: its path, name, purpose, shape, parameters, bytes and hooks."""
        return [
            {"path": line.path, "module": line.label.strip(), "what": line.says, "shape": line.shape,
             "parameters": line.parameters, "bytes": line.bytes, "hooks": line.hooks}
            for line in modules.lines(self.record)
        ]  # fmt: skip

    def __repr__(self) -> str:
        return f"<Map of {self.record.depth} layers, {self.record.parameters:,} parameters>"


class Comparison:
    """Two branches: their common prefix, and the logprob of each after it."""

    def __init__(self, compared: compare.Comparison) -> None:
        self.compared = compared

    @property
    def shared(self) -> int:
        """Length of the common prefix in tokens, including the prompt."""
        return self.compared.shared

    @property
    def step(self) -> int:
        """Number of the first step that they don't share, as `at` takes it: the prompt's tokens don't count."""
        return 1 + sum(isinstance(item, protocol.Step) for item in self.compared.left[: self.shared])

    @property
    def logprobs(self) -> tuple[float, float]:
        """The sum of the logprobs of each branch after the common prefix."""
        left, right = self.compared.totals
        return left.logprob, right.logprob

    def _repr_html_(self) -> str:
        of = self.compared
        sides = (("left", of.totals[0], of.left), ("right", of.totals[1], of.right))
        rows = [
            (name, str(totals.tokens), f"{totals.logprob:.2f}", shown(path[of.shared :]))
            for name, totals, path in sides
        ]
        return table(("", "tokens", "logprob", "text since they diverged"), rows)

    def __repr__(self) -> str:
        left, right = (
            f"{each.logprob:.2f} of {counted(each.tokens, 'token')}" for each in self.compared.totals
        )
        shared = f"{counted(self.shared, 'token')} in common, different from step {self.step} on"
        return f"<Comparison {shared}, then logprob {left} against {right}>"


def _read_layer(layer: int, layers: Sequence[Layer], what: str) -> Layer:
    """One of the layers that were read.

    Raises:
        StepError: The layer isn't among them.
    """
    found = next((each for each in layers if each.layer == layer), None)
    if found is None:
        known = ", ".join(str(each.layer) for each in layers)
        raise StepError(f"Layer {layer} has no {what} to show.", f"These have: {known or 'none'}.")
    return found
