"""A grammar that generated text must match, as the user gives it."""

from __future__ import annotations

import re
from typing import Literal, get_args

from engine.errors import SettingsError, not_unicode_at
from engine.setting import SettingsStruct

GrammarKind = Literal["regex", "json-schema", "lark", "gbnf", "choices"]
"""Notation of a grammar; `choices` is a list of allowed texts, one per line."""
KINDS: tuple[GrammarKind, ...] = get_args(GrammarKind)
LONGEST = 2**20
"""Maximum length of a grammar in characters: the largest JSON schemas in public use have about 300,000."""


class Grammar(SettingsStruct, frozen=True):
    """A grammar that generated text must match."""

    kind: GrammarKind
    text: str
    """The regular expression, the schema, the grammar, or the choices, one per line."""
    begin: int | None = None
    """Number of tokens of the path before the text that must match; None for the end of each path's last prompt."""

    @property
    def summary(self) -> str:
        """Kind and first 40 characters of the text, in one line: `regex [0-9]+`."""
        if self.kind == "regex":  # spaces are part of it, but would be invisible at its ends
            words = re.sub("^ +| +$", lambda ends: "␣" * len(ends[0]), self.text)
            words = words.replace("\n", "\\n").replace("\t", "\\t")
        else:
            listed = self.text.strip("\n").replace("\n", ", ") if self.kind == "choices" else self.text
            words = " ".join(listed.split())
        return f"{self.kind} {words[:39] + '…' if len(words) > 40 else words}"

    def check_together(self, vocabulary: int | None) -> None:
        """See `SettingsStruct`: the grammar must not be empty, too long or invalid Unicode."""
        if not self.text.strip({"regex": "", "choices": "\n"}.get(self.kind)):
            raise _wrong(f"the {self.kind} grammar is empty.", "Give it a text, or remove the grammar.")
        if (place := not_unicode_at(self.text)) is not None:
            message = f"the grammar is not valid Unicode at character {place}."
            raise _wrong(message, "Save it as UTF-8 and try again.")
        if len(self.text) > LONGEST:
            message = f"the grammar has {len(self.text):,} characters; at most {LONGEST:,} are allowed."
            raise _wrong(message, "Give a shorter one.")
        if self.begin is not None and self.begin < 0:
            raise _wrong(f"the grammar begins at token {self.begin}.", "Tokens of the context count from 0.")


def choices(texts: tuple[str, ...]) -> Grammar:
    """A grammar that allows one of several texts.

    Raises:
        SettingsError: There are no texts, or one has a line break.
    """
    if not any(texts):
        raise _wrong("choices name no text.", "Give texts with commas between them: yes,no.")
    if broken := next((text for text in texts if "\n" in text), None):
        message = f"the choice {broken[:40]!r} has a line break."
        raise _wrong(message, "Use a regular expression for such texts.")
    return Grammar("choices", "\n".join(texts))


def _wrong(message: str, hint: str) -> SettingsError:
    return SettingsError("grammar", message, hint)
