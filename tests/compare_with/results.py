"""What a scenario produced as named values and lines, and what differs between two of them."""

from __future__ import annotations

import csv
import difflib
import fnmatch
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Cells = list[tuple[str, str]]
"""A row of the screen: the text and the style of each cell."""
Part = dict[str, str] | list[str] | list[Cells]
"""Values by name, the lines of a text, or the rows of a screen."""
Output = dict[str, Part]
"""All that a scenario produced, by names of its parts."""


# ---- what must differ -------------------------------------------------------------------------


class Mask(NamedTuple):
    """What differs between any two runs: its pattern, and the scenarios in which it is masked."""

    pattern: re.Pattern[str]
    scenarios: str = "*"


NAME_MASKS = (
    Mask(re.compile(r"(\w+_)?(ms|tps)|tpot|slower_than_plain")),
    Mask(re.compile(r"memory(_\w+)?|(peak|free|rss)_bytes")),
    Mask(re.compile(r"available"), "models"),
    # beams and scores have no flag for a seed, and what they don't draw differs with it
    Mask(re.compile(r"seed|first_token"), "beam"),
    Mask(re.compile(r"seed|first_token"), "score"),
    Mask(re.compile(r"seed|first_token"), "recording-of-scores"),
)
"""Names of JSON fields and of table columns: numbers and texts under one of them are masked, however deep."""
LEFT_OUT = (
    # beams draw nothing, so they have no flag for a seed: this distribution lists a token that was drawn by chance
    Mask(re.compile(r"Prefilled\[\d+\]\.next\..*"), "beam"),
)
"""Paths of values that are not compared at all."""
TEXT_MASKS = (
    # times, rates, and ratios of times
    Mask(re.compile(r"(?<![\w.])\d(?:[\d.,\u202f]*\d)? ?(?:µs|ms|s|min|tok/s)(?![\w-])")),
    Mask(re.compile(r"[\d.]+ plain steps")),
    Mask(
        re.compile(
            r"(?:[\d.]+ times (?:faster|slower) than|As fast as|Slower than) plain steps here: .*? for (?=\d)"
        )
    ),
    Mask(re.compile(r"[\d.]+ times faster")),
    Mask(re.compile(r"([\d.]+) times as long, for"), "lesson-*"),
    Mask(re.compile(r"With the cache: ([\d.]+) times"), "lesson-*"),
    # what is right there follows from them
    Mask(
        re.compile(r"^(?:Right: (?:several|about)|Not right: you said .*;) .*as long\.$"),
        "lesson-plain-the-cache",
    ),
    Mask(re.compile(r"^(\d) of \d predictions w(?:as|ere) right"), "lesson-plain-the-cache"),
    Mask(re.compile(r"\b(?:lost|saved) +[\d.,]+ m?s\b"), "generate-draft-*"),
    # the line of times right of the text's border, of which a dialog or a message may hide a part
    Mask(re.compile(r"^╰.*[╯▌]([^│╯╮╰]+)$")),
    # the small chart of them
    Mask(re.compile(r"first token [\d.]+ ms +([▁-█]+)")),
    # memory of the process and of the machine
    Mask(re.compile(r"\b(?:memory|peak) +([\d.,]+ [KMG]iB)")),
    Mask(re.compile(r"[\d.,]+ [KMG]iB(?= at its peak| at the peak| are free| ─╯)")),
    # dates, and names of sessions made of one
    Mask(re.compile(r"(?<![\w.])20\d\d-\d\d-\d\d(?:[ T]\d\d[:.]\d\d(?:[:.]\d\d)?(?:\+00:00| UTC)?)?(?!\w)")),
    Mask(re.compile(r"(?<!\w)20\d{6}-\d{6}(?=\W)")),
    Mask(re.compile(r"mlx-inspector (\d+\.\d+(?:\.\w+)*)")),
    # of the page's script and style, which are compared
    Mask(re.compile(r"sha256-([\w+/=]+)")),
    # of files with times in them
    Mask(re.compile(r"^own\.\w+: ([\d.]+ [KM]iB)"), "recording"),
    Mask(re.compile(r"ms a token +[\d.]+ +[\d.]+ +[+−][\d.]+"), "screen-*"),
    # names in a picture of the screen
    Mask(re.compile(r"terminal-(\d+)-"), "export-*"),
    # what turns while something is computed
    Mask(re.compile(r"[⠀-⣿◐◓◑◒]")),
)
"""Texts; the group, if there is one, or else all that matches becomes #."""
PANEL_MASKS = ("Time",)
"""Titles of panels whose inside on the screen is masked: charts of times."""
COLUMN_MASKS = ("ms",)
"""Heads of columns on the screen that have numbers without a unit."""
COLUMN_WIDTH = 6
CURSOR = "on e0e0e0"
"""How the style of a field's cursor ends."""
MARKS = ("bold", "italics", "underscore", "strikethrough", "reverse")
FAILED = "FAILED"
"""Begins an exit, or an answer, that no scenario means."""


def _spans(text: str, scenario: str) -> list[tuple[int, int]]:
    """Where a line is masked, the last place first."""
    found: list[tuple[int, int]] = []
    for mask in TEXT_MASKS:
        if fnmatch.fnmatchcase(scenario, mask.scenarios):
            found += (match.span(match.lastindex or 0) for match in mask.pattern.finditer(text))
    apart: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if apart and start < apart[-1][1]:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        else:
            apart.append((start, end))
    return apart[::-1]


def masked_text(text: str, scenario: str) -> str:
    """A line without what must differ, and then without repeated spaces: columns beside it may have moved."""
    spans = _spans(text, scenario)
    for start, end in spans:
        text = f"{text[:start]}#{text[end:]}"
    return re.sub("  +", " ", text) if spans else text


def masked_value(name: str, value: Any, scenario: str) -> str:
    """A value as text: numbers with all of their digits."""
    names = re.findall(r"\w+", name)
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        for mask in NAME_MASKS:
            if fnmatch.fnmatchcase(scenario, mask.scenarios) and any(map(mask.pattern.fullmatch, names)):
                return "#"
    if isinstance(value, str):
        return "\n".join(masked_text(line, scenario) for line in value.split("\n"))
    return json.dumps(value)


def masked_cells(rows: list[Cells], scenario: str) -> list[Cells]:
    """The rows of a screen without what must differ."""
    rows = [list(row) for row in rows]
    for title in PANEL_MASKS:
        _mask_panel(rows, title)
    for head in COLUMN_MASKS:
        _mask_column(rows, head)
    return [_masked_row(row, scenario) for row in rows]


def _mask_panel(rows: list[Cells], title: str) -> None:
    for at, row in enumerate(rows):
        text = "".join(char or "\0" for char, _ in row)
        if (left := text.find(f"╭─ {title} ")) < 0:
            continue
        right = text.find("╮", left)
        for below in rows[at + 1 :]:
            if below[left][0] == "╰":
                break
            below[left + 1 : right] = [("#", "")] * (right - left - 1)


def _mask_column(rows: list[Cells], head: str) -> None:
    for at, row in enumerate(rows):
        heads = "".join(char or "\0" for char, _ in row)
        for match in re.finditer(rf"(?<= ){head}(?= )", heads):
            if heads[: match.start()].rstrip()[-1:].isdigit():
                continue  # the unit of a number
            start, end = match.end() - COLUMN_WIDTH, match.end()
            for below in rows[at + 1 :]:
                text = "".join(char or "\0" for char, _ in below[:start])
                framed = text.rfind("╰") > text.rfind("│")  # the end, whatever is written on it
                if framed or any(char not in " 0123456789.," for char, _ in below[start:end]):
                    break
                below[start:end] = [("#", below[end - 1][1])] * COLUMN_WIDTH


def _masked_row(row: Cells, scenario: str) -> Cells:
    text = "".join(char or "\0" for char, _ in row)
    spans = _spans(text, scenario)
    for start, end in spans:
        first = len(text[:start].rstrip(" "))  # a wider number has fewer spaces before it
        row[first:end] = [("#", row[start][1])]
    return _collapsed(row) if spans else row


def _collapsed(row: Cells) -> Cells:
    """A row without repeated spaces, and without repeated lines of a frame."""
    return [
        cell for at, cell in enumerate(row) if at == 0 or cell[0] not in " ─" or cell[0] != row[at - 1][0]
    ]


# ---- values and lines of what was produced ----------------------------------------------------


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers, texts, truths and nulls in a JSON value, with the path to each: `step.candidates[1].prob`."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from flat(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and value:
        for at, each in enumerate(value):
            yield from flat(each, f"{name}[{at}]")
    else:
        yield name, value


def from_json_lines(text: str, scenario: str) -> dict[str, str]:
    """The values of JSON lines; a line is named by its event and which of these it is: `step[3].prob`."""
    counts: Counter[str] = Counter()
    values: dict[str, str] = {}
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            found = {"event": "no JSON", "line": line}
        event = str(found.get("event", "line")) if isinstance(found, dict) else "line"
        values |= named(found, f"{event}[{counts[event]}]", scenario)
        counts[event] += 1
    return values


def named(value: Any, name: str, scenario: str) -> dict[str, str]:
    """The values in a JSON value, masked, by their paths."""
    left_out = [mask.pattern for mask in LEFT_OUT if fnmatch.fnmatchcase(scenario, mask.scenarios)]
    return {
        path: masked_value(path, each, scenario)
        for path, each in flat(value, name)
        if not any(pattern.fullmatch(path) for pattern in left_out)
    }


def from_csv(text: str, scenario: str) -> dict[str, str]:
    """The cells of a table with a row of names: `row[3].prob`."""
    rows = list(csv.DictReader(io.StringIO(text)))
    values: dict[str, str] = {}
    for at, row in enumerate(rows):
        for column, cell in row.items():
            name = f"row[{at}].{column}"
            number = re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", cell or "")
            values[name] = masked_value(name, float(cell), scenario) if number else f"{cell}"
            if number and values[name] != "#":
                values[name] = cell
    return values


def from_text(text: str, scenario: str) -> list[str]:
    """The lines of a text, masked."""
    return [masked_text(line, scenario) for line in text.split("\n")]


def from_page(text: str, scenario: str) -> Output:
    """A web page: the values of its JSON, and its other lines."""
    data = re.compile(r'(<script type="application/json"[^>]*>)(.*?)(</script>)', re.DOTALL)
    found = [named(json.loads(match[2]), "data", scenario) for match in data.finditer(text)]
    values = {name: value for each in found for name, value in each.items()}
    return {"data": values, "lines": from_text(data.sub(r"\1\3", text), scenario)}


def from_file(name: str, text: str, scenario: str) -> Output:
    """The parts of a written file, by its ending."""
    if name.endswith(".html"):
        return {f"{name} {part}": each for part, each in from_page(text, scenario).items()}
    if name.endswith(".csv"):
        return {name: from_csv(text, scenario)}
    return {name: from_text(text, scenario)}


def from_cells(cells: Sequence[Sequence[Any]], scenario: str) -> list[Cells]:
    """The rows of a screen, masked; each cell has its text first. The color of a space is none."""
    rows = []
    for row in cells:
        found: Cells = []
        for text, fg, bg, *marks in row:
            drawn = [name for name, on in zip(MARKS, marks, strict=True) if on]
            unseen = text == " " and not {"underscore", "strikethrough", "reverse"} & {*drawn}
            style = " ".join([f"on {bg}"] if unseen else [fg, f"on {bg}", *drawn])
            found.append((text, style))
        rows.append(found)
    return masked_cells(rows, scenario)


# ---- accepted differences -----------------------------------------------------------------------


class RuleError(Exception):
    """A line of the file of accepted differences that is no rule."""


@dataclass
class Rule:
    """One accepted difference."""

    line: int
    kind: str
    scenarios: str
    first: str
    second: str = ""
    matched: int = field(default=0, compare=False)

    def of(self, scenario: str) -> bool:
        """Whether it is about a scenario."""
        return _glob(self.scenarios).fullmatch(scenario) is not None

    def names(self, name: str) -> bool:
        """Whether it is about a value or a part; counts it."""
        found = _glob(self.first).fullmatch(name) is not None
        self.matched += found
        return found

    def renamed(self, name: str) -> str:
        """The new name of a value; the same where the rule isn't about it."""
        if (match := _glob(self.first).fullmatch(name)) is None:
            return name
        groups = iter(match.groups())
        return re.sub(r"\*", lambda _: next(groups, ""), self.second)


def _glob(pattern: str) -> re.Pattern[str]:
    """A pattern in which * is any text."""
    return re.compile("(.*?)".join(map(re.escape, pattern.split("*"))), re.DOTALL)


QUOTED = r'"(?:[^"\\]|\\.)*"'
FORMS = {
    "rename": r"(\S+) (\S+) -> (\S+)",
    "text": rf"(\S+) ({QUOTED}) -> ({QUOTED})",
    "drop": r"(\S+) (.+)",
    "add": r"(\S+) (.+)",
    "accept": r"(\S+) (.+)",
}


def read_rules(text: str) -> list[Rule]:
    """The rules of a file of accepted differences.

    Raises:
        RuleError: A line is no rule, or has no reason above it.
    """
    rules: list[Rule] = []
    reason = False
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            reason = line.startswith("#")
            continue
        kind, _, rest = line.partition(" ")
        match = re.fullmatch(FORMS.get(kind, "(?!)"), rest.strip())
        if match is None:
            raise RuleError(f"line {number} is no rule: {line}")
        if not reason:
            raise RuleError(f"line {number} has no reason in a comment above it: {line}")
        given = [json.loads(each) if each.startswith('"') else each for each in match.groups()]
        rules.append(Rule(number, kind, *given))
    return rules


# ---- differences ----------------------------------------------------------------------------------

MISSING = "(none)"


class Difference(NamedTuple):
    """One value or line that differs."""

    scenario: str
    name: str
    other: str
    this: str


def compare(scenario: str, other: Output, this: Output, rules: Iterable[Rule] = ()) -> list[Difference]:
    """What differs between two outputs of a scenario, and isn't accepted."""
    own = [rule for rule in rules if rule.of(scenario)]
    found = [Difference(scenario, *failure) for failure in _failures(this)]
    for part in [*other, *(name for name in this if name not in other)]:
        if part not in other or part not in this:
            sides = (MISSING if part not in side else f"{len(side[part])} values" for side in (other, this))
            found.append(Difference(scenario, part, *sides))
            continue
        before, after = other[part], this[part]
        if isinstance(before, dict) and isinstance(after, dict):
            pairs = _pair_values(part, before, after, own)
        elif before and after and not isinstance(before[0], str) and not isinstance(after[0], str):
            pairs = _pair_rows(part, before, after, own)  # type: ignore[arg-type]
        else:
            pairs = _pair_lines(part, list(before), list(after), own)  # type: ignore[arg-type]
        found += (Difference(scenario, *pair) for pair in pairs)
    return [each for each in found if not _accepted(each, own)]


def _failures(output: Output) -> Iterator[tuple[str, str, str]]:
    for part, found in output.items():
        values = found.items() if isinstance(found, dict) else (("", each) for each in found)
        for name, value in values:
            if isinstance(value, str) and value.startswith(FAILED):
                yield f"{part} {name}".strip(), "an answer that the scenario means", value


def _accepted(difference: Difference, rules: list[Rule]) -> bool:
    kinds = {"accept"}
    kinds |= {"add"} if difference.other == MISSING else set()
    kinds |= {"drop"} if difference.this == MISSING else set()
    matching = [rule.kind in kinds and rule.names(difference.name) for rule in rules]
    return any(matching)


def _pair_values(
    part: str, before: dict[str, str], after: dict[str, str], rules: list[Rule]
) -> Iterator[tuple[str, str, str]]:
    old = {}
    for name, value in before.items():
        for rule in rules if name not in after else ():
            if rule.kind == "rename" and (new := rule.renamed(name)) != name:
                rule.matched += 1
                name = new
        old[name] = value
    for name in [*old, *(name for name in after if name not in old)]:
        one, two = old.get(name, MISSING), after.get(name, MISSING)
        if one != two and two not in ((None,) if MISSING in (one, two) else _rewritten(one, rules)):
            yield f"{part} {name}", one, two


def _rewritten(text: str, rules: list[Rule]) -> list[str]:
    """A text with the accepted new words in it; nothing where no rule is about it."""
    new = text
    for rule in rules:
        if rule.kind == "text" and rule.first in new:
            rule.matched += 1
            new = new.replace(rule.first, rule.second)
    return [] if new == text else [new]


def _spaces(text: str) -> str:
    return re.sub("─+", "─", re.sub(" +", " ", text)).rstrip()


def _pair_lines(
    part: str, before: list[str], after: list[str], rules: list[Rule]
) -> Iterator[tuple[str, str, str]]:
    if before == after:
        return
    there, loose = {*after}, {_spaces(line): line for line in after}
    for at, line in enumerate(before):
        if line not in there:
            for new in _rewritten(line, rules):
                before[at] = loose.get(_spaces(new), new)
    for tag, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            for place in range(max(b - a, d - c)):
                first = before[a + place] if a + place < b else MISSING
                second = after[c + place] if c + place < d else MISSING
                yield f"{part} line {a + place + 1}", first, second


def _pair_rows(
    part: str, before: list[Cells], after: list[Cells], rules: list[Rule]
) -> Iterator[tuple[str, str, str]]:
    blank: Cells = []
    for at in range(max(len(before), len(after))):
        one, two = (rows[at] if at < len(rows) else blank for rows in (before, after))
        if one == two or any(_collapsed(new) == _collapsed(two) for new in _rewritten_row(one, rules)):
            continue
        texts = ["".join(char for char, _ in row).rstrip() for row in (one, two)]
        if texts[0] != texts[1]:
            yield f"{part} row {at + 1}", texts[0], texts[1]
            continue
        places = [at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]]
        if not places or (len(places) == 1 and _blinks(one[places[0]], two[places[0]])):
            continue
        place = places[0]
        end = place + 1
        while end in places and one[end][1] == one[place][1] and two[end][1] == two[place][1]:
            end += 1
        shown = repr("".join(char for char, _ in one[place:end]))
        name = f"{part} row {at + 1} colors from column {place + 1}"
        yield name, f"{shown} {one[place][1]}", f"{shown} {two[place][1]}"


def _blinks(*cells: tuple[str, str]) -> bool:
    """Whether one of them may be the cursor of a field, which comes and goes."""
    return any(style.endswith(CURSOR) for _, style in cells)


def _rewritten_row(row: Cells, rules: list[Rule]) -> Iterator[Cells]:
    text, new = "".join(char or "\0" for char, _ in row), list(row)
    for rule in rules:
        if rule.kind == "text" and (start := text.find(rule.first)) >= 0:
            rule.matched += 1
            styles = [style for _, style in row[start : start + len(rule.first)]]
            styles += styles[-1:] * len(rule.second)
            new[start : start + len(rule.first)] = zip(rule.second, styles, strict=False)
            text = "".join(char or "\0" for char, _ in new)
            yield new


def size(output: Output) -> int:
    """The number of values, lines and cells' rows in an output."""
    return sum(map(len, output.values()))


def written(output: Output) -> str:
    """An output as a text to read: a line for each value and line."""
    lines = []
    for part, found in output.items():
        if isinstance(found, dict):
            lines += [f"{part} {name} = {value}" for name, value in found.items()]
        else:
            rows = (each if isinstance(each, str) else "".join(char for char, _ in each) for each in found)
            lines += [f"{part} {at}: {row}" for at, row in enumerate(rows, 1)]
    return "\n".join(lines) + "\n"
