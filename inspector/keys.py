"""The keys of all actions: the program's defaults, and the changes by the user's own file.

This module has only keys, by the id of the action, in the form of the user's file. The names of actions, what they do
and where they apply are in the tables of their owners (`inspector.widgets.actions`). Sentences name keys in every layer
of the program, with and without a screen, so the keys are below all layers: a sentence doesn't depend on which tools
were imported.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

TABS: Mapping[str, str] = {
    "1": "Next", "2": "Why", "3": "Inside", "4": "What if", "5": "Cost", "6": "Learn", "7": "Keep",
}  # fmt: skip
"""The questions about a token, by the key of their tab."""
_BY_TAB: Mapping[str, Mapping[str, str]] = {
    "": {
        "step": "space", "run": "r", "take_back": "backspace", "choose": "enter", "stop": "escape",
        "above": "up", "below": "down", "earlier": "left", "later": "right",
        "ten_earlier": "pageup", "ten_later": "pagedown", "first": "home", "tip": "end",
        "undo": "u", "redo": "U", "prompt": "p", "sampling": "s", "enlarge": "f",
        "next_view": "tab", "view_before": "shift+tab",
        "copy_selection": "ctrl+c super+c", "go_live": "G", "finder": ":", "help": "?", "quit": "q",
        "save_as": "ctrl+s", "sessions": "ctrl+o", "alone": "0", "left_narrower": "shift+left",
        "left_wider": "shift+right", "divider_up": "shift+up", "divider_down": "shift+down", "usual_room": "\\",
        **{f"tab_{digit}": digit for digit in TABS},
    },
    "1": {
        "candidates": "c", "grammar_expects": "", "look_ahead": "l", "take_ahead": "L", "draws": "o", "find": "/",
        "own_text": "a", "grammar": "J", "merges": "E", "steps": "t", "reroll": "d", "breakpoints": "b", "skip": "n",
        "faster": "+ =", "slower": "-", "jump": "g", "find_in_text": "ctrl+f", "metric": "m", "metric_back": "M",
        "tokens": "e", "segments": "W",
        "previous_surprise": ",", "next_surprise": ".", "previous_fork": "<", "next_fork": ">",
    },
    "2": {"why": "w", "served": "R", "other_model": "j"},
    "12": {"recall": "ctrl+r"},
    "3": {
        "modules": "O", "attention": "A", "scores": "V", "lens": "I", "attribution": "D", "gradients": "g",
        "positions": "Y", "experts": "E", "facts": "i", "open": "o",
    },
    "4": {
        "tree": "t", "compare": "c", "beams": "B", "interventions": "X", "patching": "P", "second_model": "h",
        "close_second": "H", "steering": "S", "filter": "F", "bookmark": "b", "name": "N",
        "delete": "x delete", "previous_mark": "{", "next_mark": "}", "marks": "k", "reply": "R",
    },
    "14": {"previous_branch": "[", "next_branch": "]"},
    "5": {
        "kv": "k", "timing": "t", "race": "z", "batch": "b", "speculation": "d", "ranks": "R", "profile": "P",
        "compare_kv": "Q", "verify": "v",
    },
    "6": {"lessons": "S", "training": "l", "present": "K"},
    "7": {"keep": "k", "export": "E", "copy": "C", "requests": "R", "theme": "T"},
}  # fmt: skip
"""Keys of the main screen, by the tabs in which they apply (`12`: in both), empty for all tabs. An action without a
key is reached with `next_view`, a click or the finder."""
_BY_PLACE: Mapping[str, Mapping[str, str]] = {
    "": {id: key for keys in _BY_TAB.values() for id, key in keys.items()},
    "dialog": {"apply": "ctrl+s", "leave": "escape", "field_above": "up", "field_below": "down"},
    "list": {"above": "up", "below": "down", "page_up": "pageup", "page_down": "pagedown", "take": "enter"},
    "prompt": {"read_file": "ctrl+o"},
    "find": {"recall": "ctrl+r", "in_text": "ctrl+f", "scope": "ctrl+f"},
    "sampling": {
        "delete_preset": "delete", "token_before": "shift+up", "next_token": "shift+down",
        "difference_before": "pageup", "next_difference": "pagedown", "recall": "ctrl+r",
    },
    "sampler": {"cooler": "-", "warmer": "+ =", "apply": "enter"},
    "breakpoints": {"clear": "ctrl+d"},
    "grammar": {"take_off": "ctrl+d"},
    "help": {
        "filter": "/", "next_page": "right tab", "page_before": "left shift+tab", "pages": "backspace",
        "close": "@help",
    },
    "lesson": {
        "predict_1": "1", "predict_2": "2", "predict_3": "3", "predict_4": "4", "go_on": "enter", "help": "h",
        "back": "j", "on": "J", "again": "Z", "read_back": "pageup", "read_on": "pagedown", "explore": "S",
        "leave": "escape",
    },
    "lessons": {"begin": "enter", "leave": "escape"},
    "presenting": {"on": "pagedown enter", "back": "pageup", "votes": "v", "hide": "h", "blank": ".", "jump": "g"},
    "speculation": {
        "round": "space enter", "inside": "i", "run": "r", "draft": "m", "model": "o", "fewer": "left -",
        "more": "right +", "verify": "c", "anew": "n", "leave": "escape",
    },
    "second_model": {
        "open": "o", "follow_first": "space", "follow_second": "n", "ways": "w", "branch": "enter",
        "measure": "m", "next_flip": ".", "flip_before": ",", "largest": "g", "why_first": "y", "why_second": "Y",
        "inside_first": "i", "inside_second": "I", "leave": "escape",
    },
    "race": {
        "go": "space r enter", "shorter": "left -", "longer": "right +", "again": "n", "leave": "escape",
    },
    "batch": {
        "step": "space", "run": "r", "above": "up", "below": "down", "open": "enter", "add": "a", "take_out": "x",
        "alone": "c", "new": "n", "static": "m", "fewer": "left", "more": "right", "turn": "l", "leave": "escape",
    },
    "beams": {
        "step": "space", "run": "r", "above": "up", "below": "down", "go": "enter", "step_before": "left",
        "next_step": "right", "ten_before": "pageup", "ten_after": "pagedown", "first": "home", "last": "end",
        "next_view": "v", "view_before": "V", "new": "n", "leave": "escape",
        "start": "enter", "field_above": "up", "field_below": "down",
    },
    "draws": {
        "go": "space r enter", "fewer": "left", "more": "right", "longer": "up", "shorter": "down", "turn": "v",
        "leave": "escape",
    },
    "costs": {
        "next_page": "right", "page_before": "left", "again": "r space", "leave": "escape",
    },
    "ranks": {"measure": "r space", "leave": "escape"},
    "merges": {
        "above": "up", "below": "down", "word_before": "left", "next_word": "right", "turn": "v", "open": "w",
        "leave": "escape",
    },
    "segments": {"above": "up", "below": "down", "fold": "enter", "wrong": "w", "leave": "escape"},
    "compare": {
        "up": "up", "down": "down", "page_up": "pageup", "page_down": "pagedown", "divergence": "home", "end": "end",
        "match_before": ",", "next_match": ".", "left": "left", "right": "right", "next_branch": "o",
        "branch_before": "O", "next_view": "v", "view_before": "V", "largest": "g", "go": "enter", "leave": "escape",
    },
    "inside": {"leave": "escape"},
    "attention": {
        "later_layer": "up", "earlier_layer": "down", "head_before": "[ ,", "next_head": "] .", "sort": "b",
        "triangle": "a", "texts": "x",
    },
    "scores": {
        "later_layer": "up", "earlier_layer": "down", "head_before": "[ ,", "next_head": "] .", "lighter": "k",
        "heavier": "K", "compare": "c", "compare_back": "C", "mean": "d",
    },
    "lens": {
        "layer_above": "up", "layer_below": "down", "follow": "t", "measure": "m", "ten_above": "pageup",
        "ten_below": "pagedown",
    },
    "attribution": {
        "part_before": "up", "next_part": "down", "ten_before": "pageup", "ten_after": "pagedown", "heads": "enter",
        "all_heads": "h", "sort": "b", "next_token": "t", "token_before": "T", "compare": "c", "compare_back": "C",
        "alone": "d",
    },
    "gradients": {
        "token_above": "up", "token_below": "down", "next_token": "t", "token_before": "T", "compare": "c",
        "compare_back": "C", "alone": "d", "method": "m", "baseline": "b", "fewer": "-", "more": "+", "experts": "x",
    },
    "interventions": {
        "later_layer": "up", "earlier_layer": "down", "unit_before": ",", "next_unit": ".", "heads": "enter",
        "together": "a", "clear": "A", "less": "-", "more": "+", "scope": "w", "measure": "m", "hold": "g",
        "release": "o",
    },
    "steering": {
        "later_layer": "up", "earlier_layer": "down", "less": "-", "more": "+ =", "make": "enter", "scope": "w",
        "follow": "l", "against": "v", "hold": "g", "release": "o", "save": "d",
    },
    "patching": {
        "later_layer": "up", "earlier_layer": "down", "position_before": ",", "next_position": ".", "source": "o",
        "part": "m", "edit": "e", "next_token": "l", "token_before": "L", "compare": "v", "compare_back": "V",
        "facing": "a", "unface": "n", "usual": "d", "pairs": "w",
    },
    "training": {
        "step": "space", "run": "r enter", "back": "b", "open": "o", "anew": "n", "recorded": "v",
        "leave": "escape",
    },
    "positions": {"above": "up", "below": "down", "less": "-", "more": "+"},
    "modules": {
        "up": "up", "down": "down", "page_up": "pageup", "page_down": "pagedown", "open": "enter", "fold": "left",
        "unfold": "right",
    },
}  # fmt: skip
"""Keys by the name of the screen where they apply, empty for the main one, and by action. They are separated by spaces;
the first is the one that sentences name. `@race` stands for the keys of that action."""

KEYS: dict[str, str] = {
    f"{place}.{name}".removeprefix("."): keys
    for place, own in _BY_PLACE.items()
    for name, keys in own.items()
}
"""Keys by the ids of all actions: `step`, `race.shorter`."""
TABS_OF: dict[str, str] = {id: tabs for tabs, keys in _BY_TAB.items() for id in keys}
"""The tabs in which each action of the main screen applies; empty for all."""
MOVING = frozenset(("up", "down", "left", "right", "pageup", "pagedown", "home", "end"))
FIXED = MOVING | {"enter", "escape", "tab", "shift+tab"}
"""Keys that mean the same everywhere, as sentences say: the user's own keys are added to them and replace none."""
_own: Mapping[str, Sequence[str]] = {}
"""The user's own keys by action: see `use`."""
_tab = ""
"""The open tab: see `go_to`."""


def use(own: Mapping[str, Sequence[str]]) -> None:
    """Use the user's own keys from now on, instead of earlier own keys.

    Args:
        own: Keys, as Textual names them, by the id of their action.
    """
    global _own
    _own = own
    key_for.cache_clear()
    with_keys.cache_clear()


def register(id: str, keys: str, tab: str = "") -> None:
    """Add an action of a plug-in to `KEYS`, unless it is already there.

    Args:
        id: Id of the action; empty for one that is only shown.
        keys: Its keys, as in `KEYS`; empty if it is an action of the program.
        tab: Key of the tab in which it applies; empty for all tabs.
    """
    if id and keys and id not in KEYS:
        KEYS[id] = keys
        if tab:
            TABS_OF[id] = tab


def go_to(tab: str) -> None:
    """Set the open tab: sentences name keys of other tabs with the tab's key in front.

    Args:
        tab: Key of the tab; empty if there is no screen.
    """
    global _tab
    if tab != _tab:
        _tab = tab
        key_for.cache_clear()
        with_keys.cache_clear()


def names_of(id: str, keys: str = "", own: Mapping[str, Sequence[str]] | None = None) -> tuple[str, ...]:
    """The keys of an action, as Textual names them.

    Args:
        id: Id of the action.
        keys: Keys of an action that isn't in `KEYS`.
        own: The user's own keys; None for those in use.
    """
    own = _own if own is None else own
    names: list[str] = []
    for key in (keys or KEYS[id]).split():
        names += names_of(key[1:], own=own) if key.startswith("@") and len(key) > 1 else [textual_name(key)]
    if id in own:
        names = [*own[id], *(name for name in names if name in FIXED)]
    return tuple(dict.fromkeys(names))


@cache
def key_for(id: str) -> str:
    """The key of an action for a sentence: `E`, or `6 E` if it applies in a tab that isn't open.

    Args:
        id: Id of the action, one of `KEYS`.
    """
    key, tabs = shown(names_of(id)[0]), TABS_OF.get(id, "")
    return key if not tabs or _tab in [*tabs] else f"{tabs[0]} {key}"


def bare_key_for(id: str) -> str:
    """The key of an action without its tab, for a sentence that has already named the tab.

    Args:
        id: Id of the action, one of `KEYS`.
    """
    return shown(names_of(id)[0])


@lru_cache(512)  # some texts have numbers in them
def with_keys(text: str) -> str:
    """A text with keys in place of the ids of actions: `{step}`, or `{Step}` at the beginning of a sentence."""
    return _PLACE.sub(_key_at, text)


def _key_at(place: re.Match[str]) -> str:
    key = key_for(place[1][0].lower() + place[1][1:])
    return key.capitalize() if place[1][0].isupper() and key.isalpha() and len(key) > 1 else key


_PLACE = re.compile(r"\{([A-Za-z][a-z_]*(?:\.[a-z_0-9]+)?)\}")


# ---- names of keys ----------------------------------------------------------------------------

_SHOWN: Mapping[str, str] = {
    "up": "↑", "down": "↓", "left": "←", "right": "→", "enter": "⏎", "backspace": "⌫", "escape": "esc",
    "pageup": "pgup", "pagedown": "pgdn", "delete": "del",
}  # fmt: skip
"""The display form of keys, by Textual's name, where it differs."""
_NAMES = {text: name for name, text in _SHOWN.items()}
_SIGNS: Mapping[str, str] = {
    "/": "slash", "\\": "backslash", "@": "at", "-": "minus", "+": "plus", "_": "underscore",
}  # fmt: skip
"""Textual's names of characters that have a longer name in Unicode."""


@cache
def textual_name(key: str) -> str:
    """Textual's name of a key.

    Args:
        key: As it is typed (`#`), or as Textual or the user names it: `ctrl+s`, `pageup`, `esc`, `⏎`.
    """
    modifiers, plus, last = key.rpartition("+") if len(key) > 1 else ("", "", key)
    if not last:  # ctrl++
        modifiers, last = modifiers.removesuffix("+"), "+"
    name = _NAMES.get(last) or _SIGNS.get(last, last)
    if len(name) == 1 and not name.isalnum():
        name = unicodedata.name(name, name).lower().replace("-", "_").replace(" ", "_")
    return f"{modifiers.lower()}{plus}{name}"


@cache
def shown(name: str) -> str:
    """The display form of a key.

    Args:
        name: Textual's name of the key.
    """
    modifiers, plus, last = name.rpartition("+")
    return f"{modifiers}{plus}{_SHOWN.get(last) or _TYPED.get(last, last)}"


def typed(name: str) -> str | None:
    """The character that a key types; None if it types none.

    Args:
        name: Textual's name of the key.
    """
    return " " if name == "space" else name if len(name) == 1 else _TYPED.get(name)


_TYPED: Mapping[str, str] = {
    textual_name(sign): sign for sign in map(chr, range(33, 127)) if not sign.isalnum()
}
"""The typed character, by Textual's name of the key."""
PRINTABLE = tuple(textual_name(chr(code)) for code in range(33, 127))
"""Textual's names of all keys that type a visible ASCII character."""


def nothing_here(key: str) -> str:
    """The answer to a key that does nothing; empty for a key that types no character, since the terminal may use it.

    Args:
        key: Textual's name of the key.
    """
    return f"{shown(key)} does nothing here. {key_for('help')} shows the keys" if typed(key) else ""
