"""What a person, a terminal and an engine may do to the screen, and lists of it, drawn from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.keys import _character_to_key

from inspector.keys import TABS_OF, names_of
from inspector.main.key_table import key_table
from inspector.views import TOOLS
from tests.inspector.fakes import HOSTILE

TABLE = [
    name
    for action in key_table(TOOLS).actions
    for name in action.names
    if not name.startswith("super+")  # no terminal sends it without Kitty's protocol
]
LEAVES = ("q", "ctrl+q")
"""Keys that end the program: on the main screen, and everywhere."""
LOADS = ("open", "sessions")
"""Actions that open another model or recording: a random name leaves a session with none, and most keys dead."""
MOVES = (
    "1 2 3 4 5 6 tab tab tab up down left right pageup pagedown home end shift+tab enter enter escape backspace delete "
    "space shift+up shift+down ctrl+r ctrl+s ctrl+j ctrl+p ctrl+o ctrl+c ctrl+a ctrl+k ctrl+z ctrl+home ctrl+end f1 n r"
    " question_mark"
)
OPENS = (
    "breakpoints find find_in_text own_text compare beams name jump race profile compare_kv why tree timing kv "
    "prompt open facts sampling export go_live save_as sessions finder help look_ahead draws grammar "
    "modules attention lens attribution positions experts interventions patching second_model batch marks filter "
    "recall scores speculation ranks lessons tokens candidates steps keep present"
)
"""Actions that open something, or show an answer; a few actions there follow."""
WORDS = [
    "1", "7", "30", "0.5", "-1", "1e-39", "nan", "9" * 20, "the", " Lily", "pocket", "no-such-model", "#300", "0x e2",
    "out.html", "out.csv", "~nosuchuser", "~nosuchuser.md", "x" * 300, "\u202eabc", "e\u0301", "狐狸", "👩\u200d🚀",
    "[/b]", "(a+)+$", "step", "theme", "<|im_end|>", "%s%d", "\ud800",
]  # fmt: skip
PASTES = [
    *(text for text in HOSTILE if isinstance(text, str)), "\x1b[2J\x1b]0;x\x07", "a\nb\r\nc\n" * 40, "word " * 8000,
    "\u0301" * 500, "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 50, "\udcff\ud83d", "",
]  # fmt: skip
BYTES = [
    b"\xff", b"\xc3", b"\xe2\x82", b"\x80\x9b31m", b"\x1b[", b"\x1b[<0;9999;9999M", b"\x1b[200~", b"\x1b[201~", b"\x00",
    b"\x1b[I\x1b[O", b"\x1b[8;5;5t", b"\x1bOP\x1b\x1b",
]  # fmt: skip
SETTLED = 0.3
"""Share of the actions that are taken in before the next one is sent."""
BUTTONS = {
    "down": (0, "M"), "up": (0, "m"), "move": (35, "M"), "drag": (32, "M"), "right": (2, "M"), "scroll-up": (64, "M"),
    "scroll-down": (65, "M"),
}  # fmt: skip
"""Number and last letter of what a terminal sends for the mouse."""


@dataclass(frozen=True)
class Action:
    """One thing that happens.

    `key NAME`, `text TEXT`, `paste TEXT`, `bytes HEX`, `mouse WHAT COLUMN ROW`, `resize COLUMNS ROWS`, `records COUNT`
    (that the engine may hand out), `settle` (all that was sent is taken in; without it, actions come in a burst).
    """

    kind: str
    values: tuple[Any, ...] = ()

    @property
    def sent(self) -> str:
        """What a terminal sends for it; an undecodable byte is a lone surrogate, as in `surrogateescape`."""
        match self.kind:
            case "key":
                return SEQUENCES[self.values[0]]
            case "text":
                return str(self.values[0])
            case "paste":
                return f"\x1b[200~{self.values[0]}\x1b[201~"
            case "bytes":
                return bytes.fromhex(self.values[0]).decode("utf-8", "surrogateescape")
            case "mouse":
                what, column, row = self.values
                button, end = BUTTONS[what]
                return f"\x1b[<{button};{column + 1};{row + 1}{end}"
            case _:
                return ""


PROBE = (Action("bytes", (b"\x1b[201~".hex(),)), *[Action("key", ("escape",)), Action("settle")] * 12)
"""Leads to the main screen from wherever: the end of a paste that was never ended, and escapes."""


def _key(name: str) -> Action:
    return Action("key", (name,))


def _sequences() -> dict[str, str]:
    """What a terminal sends for each key, by the toolkit's name of the key."""
    found = {_character_to_key(character): character for character in map(chr, range(32, 127))}
    for sequence, keys in ANSI_SEQUENCES_KEYS.items():
        if isinstance(keys, tuple) and len(keys) == 1:
            found.setdefault(str(getattr(keys[0], "value", keys[0])), sequence)
    return {**found, "escape": "\x1b"}


SEQUENCES = _sequences()


@dataclass(frozen=True)
class Scenario:
    """How a session begins."""

    kind: str
    """`live`, `held` (records come when an action lets them), `replay`, `failed` (no model), `empty` (no prompt),
    or one of `MODES`."""
    model: str = "llama"
    """A family of tests/zoo.py, or `pocket`."""
    prompt: str = "Once upon a time, there was"
    chat: bool = False
    temp: float = 0.8
    size: tuple[int, int] = (120, 40)
    save: bool = False
    no_kv_cache: bool = False
    number: int = 0
    """Which lesson, for one; any number."""


@dataclass(frozen=True)
class Script:
    """A scenario and what happens in it."""

    seed: int
    scenario: Scenario
    actions: tuple[Action, ...]

    @property
    def keys(self) -> int:
        """Actions but for the pauses between them."""
        return sum(action.kind != "settle" for action in self.actions)

    def write(self, path: Path) -> None:
        """Write it where `read` finds it."""
        lines = [{"seed": self.seed, **asdict(self.scenario)}, *([a.kind, *a.values] for a in self.actions)]
        path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Script:
        """What `write` wrote."""
        first, *rest = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        seed, size = first.pop("seed"), tuple(first.pop("size"))
        return cls(
            seed, Scenario(**first, size=size), tuple(Action(kind, tuple(values)) for kind, *values in rest)
        )


@dataclass(frozen=True)
class Mode:
    """How a kind of session is driven."""

    keys: str
    """Names of keys that are drawn more often than others."""
    opens: tuple[Action, ...] = ()
    """Done at the beginning, and now and then, since random keys lead away."""
    actions: int = 250
    """In one session at most: more where it takes long to begin."""
    models: tuple[str, ...] = ("pocket", "llama")


def _keys(names: str) -> tuple[Action, ...]:
    """Keys, each settled; a word that begins with `=` is typed."""
    made: list[Action] = []
    for name in names.split():
        made += [
            Action("text", (name[1:],)) if name.startswith("=") else Action("key", (name,)),
            Action("settle"),
        ]
    return tuple(made)


_LESSON = "1 2 3 4 enter space h j J Z S right left tab"
_BATCH = (
    *_keys("4 Z"),
    Action("text", ("Once upon a time",)),
    *_keys("enter =The ctrl+s"),
    Action("records", (100,)),
)
MODES: Mapping[str, Mode] = {
    "lesson": Mode(_LESSON, models=("pocket",)),
    "lesson-recorded": Mode(_LESSON, models=("pocket",)),
    "presenter": Mode("1 2 3 4 enter pagedown pageup v h full_stop g J S space", models=("pocket",)),
    "lockstep": Mode("space n w full_stop comma g m H left right enter", _keys("4 h enter enter")),
    "batch": Mode("space r up down enter a x v n m l left right tab", _BATCH),
    "grammar": Mode("space r enter J tab 1 2 w s down up backspace", _keys("1 tab")),
    "ranks": Mode("space r 5 R enter down backspace 1 l 4 B t", _keys("5 R"), 1000, ("llama",)),
    "following": Mode("space r backspace end left right tab 4 t 2 w 3 A"),
    "large": Mode("3 A I D Y O E 4 X P tab down right left space r a s", _keys("3 A"), models=("large",)),
}  # fmt: skip
"""The kinds of sessions beyond the plain ones; `begin` of `tests.fuzz.pilot` makes the application of each."""


def scripts(seed: int, keys: int, kinds: Sequence[str]) -> Iterator[Script]:
    """Sessions one after another, with so many actions in all.

    Args:
        seed: Everything follows from it.
        keys: Actions in all.
        kinds: Of the scenarios.
    """
    for number in range(keys):
        if keys <= 0:
            return
        script = drawn(seed, number, keys, kinds)
        keys -= script.keys
        yield script


def drawn(seed: int, number: int, most: int, kinds: Sequence[str]) -> Script:
    """One session.

    Args:
        seed: Everything follows from it, and from the number.
        number: Of the session, from 0.
        most: Actions at most.
        kinds: Of the scenario.
    """
    chosen = random.Random(f"{seed}/{number}")
    scenario = _scenario(chosen, kinds)
    mode = MODES.get(scenario.kind)
    count = min(chosen.randint(40, 250) if mode is None else mode.actions, most)
    return Script(seed, scenario, tuple(Drawing(chosen, scenario.size, mode).actions(count)))


def _scenario(chosen: random.Random, kinds: Sequence[str]) -> Scenario:
    kind = chosen.choice(kinds)
    return Scenario(
        kind,
        chosen.choice(
            MODES[kind].models if kind in MODES else ("llama", "llama", "gemma3", "mamba2", "pocket")
        ),
        ""
        if kind == "empty"
        else chosen.choice(("Once upon a time, there was", "a " * 400, "[/b]\x1b狐\u202e", "x")),
        chosen.random() < 0.3,
        chosen.choice((0.0, 0.8, 1.5)),
        chosen.choice(((80, 24), (80, 24), (80, 24), (120, 40), (60, 20), (40, 12))),
        chosen.random() < 0.3,
        chosen.random() < 0.1 and kind not in MODES,
        chosen.randrange(1000),
    )


class Drawing:
    """Draws actions.

    Args:
        chosen: Where from.
        size: Columns and rows at first.
        mode: Whose keys are drawn more often; None for a plain session.
    """

    def __init__(self, chosen: random.Random, size: tuple[int, int], mode: Mode | None = None) -> None:
        self._random, self._size, self._mode = chosen, size, mode
        self._makers: dict[Callable[[], list[Action]], int] = {
            self._key: 30, self._move: 25, self._opened: 10, self._text: 5, self._paste: 3, self._mouse: 10,
            self._click: 10, self._resize: 3, self._records: 14, self._bytes: 1, self._leave: 7,
        }  # fmt: skip
        if mode is not None:
            self._makers |= {self._of_mode: 60, self._reopened: 6}

    def actions(self, count: int) -> Iterator[Action]:
        """So many, not counting the pauses. Most sessions first get as far as a prompt and some steps."""
        chosen = self._random
        waiting = [Action("records", (1000,)), Action("settle")] * 3 if chosen.random() < 0.85 else []
        if chosen.random() < 0.5:
            waiting += [
                Action("key", (chosen.choice(("r", "space", "n")),)),
                Action("records", (60,)),
                Action("settle"),
            ]
        if self._mode is not None:
            waiting += self._mode.opens
        while count > 0:
            if not waiting:
                waiting = self._draw()
            action = waiting.pop(0)
            count -= action.kind != "settle"
            yield action

    def _draw(self) -> list[Action]:
        chosen = self._random
        made = chosen.choices(list(self._makers), list(self._makers.values()))[0]()
        return made + [Action("settle")] * (chosen.random() < SETTLED)

    def _key(self) -> list[Action]:
        name = self._random.choice(TABLE)
        rare = LEAVES if self._mode is None else (*LEAVES, *(names_of(id)[0] for id in LOADS))
        if name in rare and self._random.random() < 0.9:
            name = "space"
        if self._random.random() < 0.004:
            name = "ctrl+q"
        return [Action("key", (name,))]

    def _of_mode(self) -> list[Action]:
        return [_key(self._random.choice(self._mode.keys.split()))]

    def _reopened(self) -> list[Action]:
        return [*[_key("escape")] * self._random.choice((1, 1, 2)), *self._mode.opens]

    def _move(self) -> list[Action]:
        return [Action("key", (self._random.choice(MOVES.split()),))] * self._random.choice((1, 1, 1, 2, 5))

    def _opened(self) -> list[Action]:
        """Something is opened, something done in it, and it is left, or not."""
        chosen = self._random
        id = chosen.choice([id for id in OPENS.split() if self._mode is None or id not in LOADS])
        made = [
            *map(_key, (*TABS_OF[id][:1], names_of(id)[0])),
            *([Action("settle")] * (chosen.random() < 0.7)),
        ]
        for _ in range(chosen.randint(0, 6)):
            made += chosen.choice((self._move, self._text, self._records, self._move, self._click))()
        made += map(_key, chosen.choice(((), ("enter",), ("enter", "enter"), ("ctrl+s",), ("escape",))))
        return made

    def _leave(self) -> list[Action]:
        return [Action("key", ("escape",))] * self._random.choice((1, 2, 3))

    def _text(self) -> list[Action]:
        return [Action("text", (self._random.choice(WORDS),))]

    def _paste(self) -> list[Action]:
        return [Action("paste", (self._random.choice(PASTES),))]

    def _cell(self) -> tuple[int, int]:
        return self._random.randrange(self._size[0]), self._random.randrange(self._size[1])

    def _mouse(self) -> list[Action]:
        return [Action("mouse", (self._random.choice(list(BUTTONS)), *self._cell()))]

    def _click(self) -> list[Action]:
        """Somewhere, as often as not on the tabs or the answers of the open one."""
        column, row = self._cell()
        cell = column, self._random.choice((row, row, 1, 2))
        return [Action("mouse", (what, *cell)) for what in ("down", "up") * self._random.choice((1, 1, 2))]

    def _resize(self) -> list[Action]:
        chosen = self._random
        tiny, wide = (
            (chosen.randint(1, 12), chosen.randint(1, 6)),
            (chosen.randint(1, 300), chosen.randint(1, 100)),
        )
        self._size = chosen.choice(
            (tiny, tiny, (chosen.randint(20, 130), 30), wide, (80, 24), (80, 24), (120, 40), (40, 12))
        )
        return [Action("resize", self._size)]

    def _records(self) -> list[Action]:
        return [Action("records", (self._random.choice((1, 1, 2, 3, 5, 20, 100)),))]

    def _bytes(self) -> list[Action]:
        return [Action("bytes", (self._random.choice(BYTES).hex(),))]
