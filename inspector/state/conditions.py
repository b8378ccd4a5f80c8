"""The conditions under which the tokens of a path were made, beyond the plain model and its sampler.

Interventions, a grammar, a draft, no KV cache, a different order of the sampler, settings that changed on the way:
all code that shows or writes a text asks here, so that no text leaves the program without naming them. All words are
printable.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from engine.protocol import Finished, Intervention, ModelFacts, Step
from engine.setting import Setting
from engine.settings import BY_NAME, FIELDS, STAGES, LoadSettings, Settings, with_defaults
from inspector.display import quoted, visible
from inspector.state.inside import interventions_words
from inspector.state.session_tree import Item, SessionTree

UNRECORDED = "which was not recorded"
_NO_MATTER = ("candidates", "max_tokens", "stop", "sampler_order")
"""Settings that change no token, and `sampler_order`, which has its own condition."""
_RANGES = 6
"""Maximum number of stretches of a path that are listed."""


def ending(finished: Finished) -> str:
    """Why a text ended: `stopped at the 100-token limit`."""
    detail = visible(finished.detail)
    match finished.reason:
        case "eos":
            return f"the model ended the text ({detail})"
        case "grammar":
            return "the text is what the grammar asks for"
        case "stop":
            return f"stopped at {quoted(detail)}"
    count, tokens, open_ = detail.partition(" token")
    if not tokens or not count.replace(",", "").isdecimal():
        return f"{detail} is full"
    limit = f"stopped at the {count}-token limit"
    return f"{limit}, before the output was complete" if "grammar" in open_ else limit


class TextCondition(Struct, frozen=True):
    """One condition that a token was made under."""

    name: str
    """Kind: `interventions`, `grammar`, `draft`, `KV cache`, `sampler`, or a setting."""
    words: str
    """Details: `L6 h1 off`, `regex [0-9]+`, `L4 +happy-sad x2 #e3cfec11`."""
    brief: str = ""
    """A shorter form for narrow places; empty to use name and details."""

    @property
    def short(self) -> str:
        """The shortest form."""
        return self.brief or f"{self.name} {self.words}"


class Made(Struct, frozen=True):
    """A condition, and the tokens of a path that were made under it."""

    condition: TextCondition
    where: str
    """`all steps`, `step 7`, `steps 3 to 20`."""

    @property
    def figure(self) -> tuple[str, str]:
        """Name and value."""
        return self.condition.name, f"{self.condition.words}, {self.where}"

    @property
    def sentence(self) -> str:
        """One line of a text."""
        return f"Made with {self.condition.name}: {self.condition.words} ({self.where})"


def conditions(tree: SessionTree, item: Item) -> tuple[TextCondition, ...]:
    """The conditions under which one token was made.

    Args:
        tree: The tree of the token.
        item: The token.
    """
    units = tree.under(item)
    found = [] if units is None else [held(units)]
    if not isinstance(item, Step):
        return tuple(found)
    settings, reading = tree.settings.get(item.node), item.choice.grammar
    by_hand = item.origin in ("chosen", "inserted")
    if reading is not None and reading.state not in ("left", "ended") and not by_hand:
        found.append(grammar(settings) or TextCondition("grammar", UNRECORDED))
    if item.ms.shared or item.node in tree.drafts:
        found.append(draft(tree.drafts.get(item.node, UNRECORDED)))
    if item.kv.passed_tokens:
        found.append(NO_CACHE)
    if not by_hand and (ordered := order(settings)) is not None:
        found.append(ordered)
    return tuple(found)


def held(units: Sequence[Intervention]) -> TextCondition:
    """The condition for interventions."""
    words = interventions_words(units, exact=True) or UNRECORDED
    return TextCondition("interventions", words, interventions_words(units) or UNRECORDED)


def draft(name: str) -> TextCondition:
    """The condition for a draft of speculative decoding; of a path only the name, since directories are private."""
    return TextCondition("draft", visible(name.rstrip("/").rpartition("/")[2]))


NO_CACHE = TextCondition("KV cache", "off")


def grammar(settings: Settings | None) -> TextCondition | None:
    """The condition for a grammar; None if the settings have none."""
    if settings is None or settings.grammar is None:
        return None
    return TextCondition("grammar", visible(settings.grammar.summary))


def order(settings: Settings | None) -> TextCondition | None:
    """The condition for the order of the sampler's stages; None if nothing is drawn or the order is mlx-lm's."""
    if settings is None or not settings.temp or settings.sampler_order == BY_NAME["sampler_order"].default:
        return None
    return TextCondition("sampler", f"order {settings.sampler_order}")


def requested(settings: Settings, load: LoadSettings) -> list[TextCondition]:
    """The conditions that follow from the settings alone, before a text is generated.

    Args:
        settings: Settings of the sampler.
        load: Settings of the model.
    """
    every = (grammar(settings), order(settings), NO_CACHE if load.no_kv_cache else None)
    return [each for each in every if each is not None]


def by_token(tree: SessionTree, items: Sequence[Item]) -> list[tuple[TextCondition, ...]]:
    """The conditions under which each token was made, with the settings that differ between the tokens."""
    by_item = [tree.settings.get(item.node) for item in items]
    known = [settings for settings in by_item if settings is not None]
    varied = [
        field
        for field in FIELDS
        if field.name not in _NO_MATTER and len({getattr(settings, field.name) for settings in known}) > 1
    ]

    def varying(settings: Settings | None) -> list[TextCondition]:
        fields = varied if settings is not None else []
        return [
            TextCondition(each.label, visible(each.format(getattr(settings, each.name)) or "none"))
            for each in fields
        ]

    return [(*conditions(tree, item), *varying(each)) for item, each in zip(items, by_item, strict=True)]


def made_with(tree: SessionTree, items: Sequence[Item]) -> list[Made]:
    """The conditions of a path's tokens, each with the tokens that it applies to.

    Args:
        tree: The tree of the path.
        items: The path, from the first token on.
    """
    runs: dict[TextCondition, list[tuple[int, int]]] = {}
    for slot, found_here in enumerate(by_token(tree, items)):
        for condition in found_here:
            found = runs.setdefault(condition, [])
            begin = found.pop()[0] if found and found[-1][1] == slot - 1 else slot
            found.append((begin, slot))
    return [Made(condition, _where(items, found)) for condition, found in runs.items()]


def _where(items: Sequence[Item], runs: Sequence[tuple[int, int]]) -> str:
    """Words for runs of slots: `all steps`, `steps 3 to 20 and 25`, `prompt token 1`."""
    steps = [[each.index + 1 for each in items[a : b + 1] if isinstance(each, Step)] for a, b in runs]
    noun, ranges = "step", [(run[0], run[-1]) for run in steps if run]
    if not ranges:
        noun, ranges = "prompt token", [(first + 1, last + 1) for first, last in runs]
    elif sum(map(len, steps)) == sum(isinstance(item, Step) for item in items) > 1:
        return "all steps"
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:_RANGES]]
    if (more := len(ranges) - len(texts)) > 0:
        texts.append(f"{more} more stretches" if more > 1 else "one more stretch")
    several = len(ranges) > 1 or ranges[0][0] != ranges[0][1]
    listed = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
    return f"{noun}{'s' * several} {listed}"


def in_short(made: Sequence[Made]) -> str:
    """The conditions of a path in one phrase; empty if there are none."""
    return " · ".join(dict.fromkeys(each.condition.short for each in made))


# ---- the settings in words ---------------------------------------------------------------------


def defaults_of(facts: ModelFacts, settings: Settings) -> str:
    """The source of default settings: `model's` or `mlx-lm's`; empty if the user has changed any."""
    usual = with_defaults(Settings(), facts.sampling, ())
    shown = (BY_NAME["temp"], *_TOLD)
    if settings.grammar is not None or any(
        getattr(settings, each.name) != getattr(usual, each.name) for each in shown
    ):
        return ""
    return "model's" if facts.sampling else "mlx-lm's"


def settings_words(settings: Settings) -> list[str]:
    """The settings that are on, except temperature and grammar; with greedy decoding, those that matter for it."""
    return [
        _words(field, settings) for field in _TOLD if field.on(settings) and (settings.temp or _greedy(field))
    ]


def _words(field: Setting, settings: Settings) -> str:
    if field.brief is not None:
        return field.brief(settings)
    name, value = field.stage.name if field.stage else field.label, getattr(settings, field.name)
    return f"{name} {value}" if isinstance(value, int) else f"{name} {value:g}"


def _greedy(field: Setting) -> bool:
    """True if a setting matters for greedy decoding too: it changes logits or ends the text."""
    return field.kind == "texts" if field.stage is None else field.stage.kind == "logits"


_STAGED = (BY_NAME[stage.setting] for stage in STAGES.values() if stage.kind != "scale")
_TOLD = sorted(
    (*_STAGED, *(field for field in FIELDS if field.stage is None and field.brief is not None)),
    key=lambda field: not _greedy(field),
)
"""Settings in the order in which they are listed: those that matter for greedy decoding first."""
