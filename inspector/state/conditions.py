"""How the tokens of a path were made, where it was not by the model as it is and its sampler alone. Pure.

Interventions, a grammar, a draft, no KV cache, another order of the sampler, settings that were changed on the way:
whatever shows or writes a text asks here, so that no text made with them leaves the program without their names. All
words are printable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from engine.protocol import Intervention, ModelFacts, Step
from engine.setting import Setting
from engine.settings import BY_NAME, FIELDS, STAGES, LoadSettings, Settings, with_defaults
from inspector.display import visible
from inspector.state.inside import interventions_words
from inspector.state.session_tree import Item, SessionTree

UNRECORDED = "which was not recorded"
_NO_MATTER = ("candidates", "max_tokens", "stop", "sampler_order")
"""Settings that change no token, and the one that is a condition of its own."""
_RANGES = 6
"""Stretches of a path that are listed one by one, at most."""


class TextCondition(Struct, frozen=True):
    """One thing that a token was made with."""

    name: str
    """What it is: `interventions`, `grammar`, `draft`, `KV cache`, `sampler`, or a setting."""
    words: str
    """Which: `L6 h1 off`, `regex [0-9]+`."""

    @property
    def short(self) -> str:
        """Both, as short as can be understood."""
        return self.words if self.name == "interventions" else f"{self.name} {self.words}"


class Made(Struct, frozen=True):
    """A condition, and the tokens of a path that were made with it."""

    condition: TextCondition
    where: str
    """`all steps`, `step 7`, `steps 3 to 20`."""

    @property
    def figure(self) -> tuple[str, str]:
        """As a name and a value."""
        return self.condition.name, f"{self.condition.words}, {self.where}"

    @property
    def sentence(self) -> str:
        """As one line of a text."""
        return f"Made with {self.condition.name}: {self.condition.words} ({self.where})"


def conditions(tree: SessionTree, item: Item) -> tuple[TextCondition, ...]:
    """The conditions under which one token was made.

    Args:
        tree: Whose token it is.
        item: The token.
    """
    return tuple(_conditions(tree, item))


def _conditions(tree: SessionTree, item: Item) -> Iterator[TextCondition]:
    if (units := tree.under(item)) is not None:
        yield held(units)
    if not isinstance(item, Step):
        return
    settings, reading = tree.settings.get(item.node), item.choice.grammar
    by_hand = item.origin in ("chosen", "inserted")
    if reading is not None and reading.state not in ("left", "ended") and not by_hand:
        yield grammar(settings) or TextCondition("grammar", UNRECORDED)
    if item.ms.shared or item.node in tree.drafts:
        yield draft(tree.drafts.get(item.node, UNRECORDED))
    if item.kv.passed_tokens:
        yield NO_CACHE
    if not by_hand and (ordered := order(settings)) is not None:
        yield ordered


def held(units: Sequence[Intervention]) -> TextCondition:
    """Interventions."""
    return TextCondition("interventions", interventions_words(units) or UNRECORDED)


def draft(name: str) -> TextCondition:
    """The draft of speculative decoding; of a model in a directory, which is private, the name alone."""
    return TextCondition("draft", visible(name.rstrip("/").rpartition("/")[2]))


NO_CACHE = TextCondition("KV cache", "off")


def grammar(settings: Settings | None) -> TextCondition | None:
    """The grammar of some settings, None where they have none."""
    if settings is None or settings.grammar is None:
        return None
    return TextCondition("grammar", visible(settings.grammar.summary))


def order(settings: Settings | None) -> TextCondition | None:
    """The order of the sampler's stages, where tokens are drawn and it is not mlx-lm's."""
    if settings is None or not settings.temp or settings.sampler_order == BY_NAME["sampler_order"].default:
        return None
    return TextCondition("sampler", f"order {settings.sampler_order}")


def requested(settings: Settings, load: LoadSettings) -> list[TextCondition]:
    """The conditions of a text that is generated with some settings.

    Args:
        settings: Of the sampler.
        load: Of the model.
    """
    every = (grammar(settings), order(settings), NO_CACHE if load.no_kv_cache else None)
    return [each for each in every if each is not None]


def by_token(tree: SessionTree, items: Sequence[Item]) -> list[tuple[TextCondition, ...]]:
    """The conditions under which each of some tokens was made: settings too, where not all tokens have the same.

    Args:
        tree: Whose tokens they are.
        items: The tokens.
    """
    varied = _varied(tree, items)
    return [(*conditions(tree, item), *varied(item)) for item in items]


def made_with(tree: SessionTree, items: Sequence[Item]) -> list[Made]:
    """The conditions of a path's tokens, each with the tokens that it is true of.

    Args:
        tree: Whose path it is.
        items: The path, from the first token on.
    """
    runs: dict[TextCondition, list[list[int]]] = {}
    for slot, found_here in enumerate(by_token(tree, items)):
        for condition in found_here:
            found = runs.setdefault(condition, [])
            if found and found[-1][1] == slot - 1:
                found[-1][1] = slot
            else:
                found.append([slot, slot])
    return [Made(condition, _where(items, found)) for condition, found in runs.items()]


def _varied(tree: SessionTree, items: Sequence[Item]) -> Callable[[Item], Iterator[TextCondition]]:
    """What gives a token's settings, of those that are not the same all along the path."""
    known = [settings for item in items if (settings := tree.settings.get(item.node)) is not None]
    fields = [
        field
        for field in FIELDS
        if field.name not in _NO_MATTER and len({getattr(settings, field.name) for settings in known}) > 1
    ]

    def of(item: Item) -> Iterator[TextCondition]:
        settings = tree.settings.get(item.node)
        for field in fields if settings is not None else ():
            yield TextCondition(field.label, visible(field.format(getattr(settings, field.name))))

    return of


def _where(items: Sequence[Item], runs: Sequence[Sequence[int]]) -> str:
    steps = [
        [item.index + 1 for item in items[first : last + 1] if isinstance(item, Step)] for first, last in runs
    ]
    numbers = [run for run in steps if run]
    if not numbers:
        return _listed("prompt token", [(first + 1, last + 1) for first, last in runs])
    if sum(map(len, numbers)) == sum(1 for item in items if isinstance(item, Step)) > 1:
        return "all steps"
    return _listed("step", [(run[0], run[-1]) for run in numbers])


def _listed(noun: str, ranges: Sequence[tuple[int, int]]) -> str:
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:_RANGES]]
    more = len(ranges) - len(texts)
    texts += [f"{more} more stretches"] if more > 1 else [] if not more else ["one more stretch"]
    several = len(ranges) > 1 or ranges[0][0] != ranges[0][1]
    listed = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
    return f"{noun}{'s' * several} {listed}"


def in_short(made: Sequence[Made]) -> str:
    """The conditions of a path, in one phrase; empty where it was the model and its sampler alone."""
    return " · ".join(dict.fromkeys(each.condition.short for each in made))


# ---- the settings in words ---------------------------------------------------------------------


def defaults_of(facts: ModelFacts, settings: Settings) -> str:
    """Whose defaults the settings are: `model's`, `mlx-lm's`, or empty if the user has changed them."""
    if with_defaults(settings, facts.sampling, ()) != settings or settings.grammar is not None:
        return ""
    return "model's" if facts.sampling else "mlx-lm's"


def settings_words(settings: Settings) -> list[str]:
    """Every setting that is on, the temperature and the grammar apart."""
    told = [*_GREEDY, *(_DRAWN if settings.temp else ())]
    return [_words(field, settings) for field in told if field.on(settings)]


def _words(field: Setting, settings: Settings) -> str:
    if field.brief is not None:
        return field.brief(settings)
    name, value = field.stage.name if field.stage else field.label, getattr(settings, field.name)
    return f"{name} {value}" if isinstance(value, int) else f"{name} {value:g}"


_STAGES = [(stage.kind, BY_NAME[stage.setting]) for stage in STAGES.values() if stage.kind != "scale"]
_OTHERS = [field for field in FIELDS if field.stage is None and field.brief is not None]
_GREEDY = [
    *(field for kind, field in _STAGES if kind == "logits"),
    *(field for field in _OTHERS if field.kind == "texts"),
]
"""Settings that greedy decoding goes by, too: they change logits, or end the text."""
_DRAWN = [
    *(field for kind, field in _STAGES if kind != "logits"),
    *(field for field in _OTHERS if field.kind != "texts"),
]
"""Settings that cut tokens, and the order of the stages where it is none of mlx_lm's."""
