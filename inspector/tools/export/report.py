"""The report of one's own results: what was done in lessons, what was predicted, and what the run gave.

It says what the program wrote down at each reveal, and nothing else: what was not done is called so, a later prediction
is told apart from the first, and no grade is made of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime

from markdown_it import MarkdownIt

from engine.errors import EngineError
from engine.frozen import frozen
from inspector.display import visible
from inspector.lessons.courses import Course
from inspector.lessons.journal import LessonJournal, SeenBeat, now
from inspector.lessons.lesson import Lesson
from inspector.tools.export.documents import escaped, markdown_table
from inspector.tools.export.markup import framed, scrollable
from inspector.version import program

FORMATS = ("md", "html", "jsonl")
NO_GRADE = (
    "This is no grade: a prediction is made before anything is shown, and a wrong one is as good a beginning. The "
    "program wrote each line of it at a reveal, into a file of the learner's own that anybody can change. Whether a "
    "step was done by its keys, or had done by the program, isn't kept."
)


def seen() -> list[SeenBeat]:
    """All that the user has seen."""
    return LessonJournal().read()


@frozen
class LessonSeen:
    """What was seen of one lesson."""

    id: str
    title: str
    beats: int
    """Of the lesson; 0 where nothing is known of it."""
    entries: tuple[SeenBeat, ...]
    """In the order of time."""

    @property
    def by_beat(self) -> dict[int, list[SeenBeat]]:
        """The entries of each beat that was seen."""
        numbers = sorted({each.beat for each in self.entries})
        return {number: [each for each in self.entries if each.beat == number] for number in numbers}

    @property
    def first_predictions(self) -> list[SeenBeat]:
        """Of each beat the first entry in which something was predicted."""
        made = ([each for each in some if each.right is not None] for some in self.by_beat.values())
        return [some[0] for some in made if some]


@frozen
class LessonReport:
    """A report to be written."""

    entries: Sequence[SeenBeat]
    """In the order of time."""
    course: Course | None = None
    """The course that it is of; None for whatever was seen."""
    lesson: Lesson | None = None
    """The one lesson that it is of."""

    @property
    def title(self) -> str:
        """Of the page; printable."""
        of = self.lesson or self.course
        return visible(f"Report: {of.title}" if of is not None else "Report on lessons")

    @property
    def lessons(self) -> list[LessonSeen]:
        """Those that it is of, also those of which nothing was seen."""
        if self.lesson is not None:
            return [self._of(self.lesson)]
        if self.course is not None:
            return [self._of(part.listed.lesson) for part in self.course.parts]
        latest = {each.lesson: each for each in self.entries}
        return [
            LessonSeen(id, each.title, each.beats, self._entries(id, each.beats))
            for id, each in latest.items()
        ]

    def _of(self, lesson: Lesson) -> LessonSeen:
        beats = len(lesson.beats)
        return LessonSeen(lesson.id, lesson.title, beats, self._entries(lesson.id, beats))

    def _entries(self, id: str, beats: int) -> tuple[SeenBeat, ...]:
        return tuple(each for each in self.entries if each.lesson == id and each.beat <= beats)

    @property
    def summary(self) -> str:
        """Its content, as the end of a sentence."""
        lessons = self.lessons
        begun = [each for each in lessons if each.entries]
        beats, all = sum(len(each.by_beat) for each in begun), sum(each.beats for each in lessons)
        first = [entry for each in begun for entry in each.first_predictions]
        right = sum(entry.right is True for entry in first)
        return (
            f"{len(begun)} of {len(lessons)} lessons begun, {beats} of {all} beats seen; of {len(first)} first "
            f"predictions {right} were what the run gave"
        )


def document(report: LessonReport, name: str) -> str:
    """A report as a document.

    Args:
        report: The report.
        name: One of `FORMATS`.

    Raises:
        EngineError: There is no such format, or nothing was seen.
    """
    if name not in FORMATS:
        ends = ", ".join(f".{each}" for each in FORMATS)
        raise EngineError("The end of the report's name says no format.", f"Let it end in one of {ends}.")
    if not any(each.entries for each in report.lessons):
        what = "of this" if report.course is not None or report.lesson is not None else "yet"
        raise EngineError(
            f"No beat was seen {what}: there is nothing to report.",
            "inspector learn lists lessons and courses.",
        )
    if name == "jsonl":
        entries = (entry for each in report.lessons for entry in each.entries)
        return "".join(f"{json.dumps(asdict(entry))}\n" for entry in entries)
    text = markdown(report)
    if name == "md":
        return text
    body = text.partition("\n")[2]  # the frame has the title
    reader = MarkdownIt("js-default")
    tokens = reader.parse(body)
    for token in tokens:
        scrollable(token)
    content = reader.renderer.render(tokens, reader.options, {})
    return framed(report.title, f"Made by {program()}", content)


def markdown(report: LessonReport) -> str:
    """The report."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: LessonReport) -> Iterator[str]:
    yield from (f"# {_shown(report.title)}", "")
    yield from (_shown(f"{_minute(now())}, {program()}. {report.summary}."), "", NO_GRADE, "")
    head = ("lesson", "beats seen", "first predictions that the run bore out", "from", "to")
    yield from markdown_table(head, map(_row, report.lessons))
    for lesson in report.lessons:
        if lesson.entries:
            yield from _lesson(lesson)


def _row(of: LessonSeen) -> tuple[str, ...]:
    first = of.first_predictions
    right = sum(each.right is True for each in first)
    seen = f"{len(of.by_beat)} of {of.beats}"
    if not of.entries:
        return visible(of.title), seen, "", "not begun", ""
    when = (_minute(of.entries[0].when), _minute(of.entries[-1].when))
    return visible(of.title), seen, f"{right} of {len(first)}", *when


def _lesson(of: LessonSeen) -> Iterator[str]:
    yield from ("", f"## {_shown(of.title)}")
    for number, entries in of.by_beat.items():
        yield from ("", f"### {number}. {_shown(entries[-1].heading)}", "")
        for place, entry in enumerate(entries):
            yield from _entry(entry, "Again, " if place else "")
    missing = [str(number) for number in range(1, of.beats + 1) if number not in of.by_beat]
    if missing:
        plural = "s" * (len(missing) > 1)
        yield from ("", f"Not seen: beat{plural} {', '.join(missing)}.")


def _entry(entry: SeenBeat, again: str) -> Iterator[str]:
    """A beat at one time: each line is an item of a list."""
    source = f"{entry.model} in {entry.dtype}" if entry.model and entry.dtype else entry.model or "no model"
    source += ", from the lesson's recording" if entry.recorded else ""
    yield f"- {again}{_shown(f'{_minute(entry.when)}, {source}')}"
    if entry.question:
        yield f"- Asked: {_shown(entry.question)}"
        yield f"- {_predicted(entry)}"
    if entry.did:
        yield f"- Done: {_shown('; '.join(entry.did))}"
    if entry.answer or entry.value:
        gave = f"**{_shown(entry.answer or 'none of the options')}**"
        value = f" ({_shown(entry.value)})" if entry.value.strip("‘’ ") not in ("", entry.answer) else ""
        yield f"- The run gave: {gave}{value}"
    for each in entry.why:
        yield f"- Seen: {_shown(each)}"


def _predicted(entry: SeenBeat) -> str:
    if not entry.predicted:
        return "Predicted: nothing"
    verdict = {True: "so it was", False: "it was not so", None: "not decided"}[entry.right]
    return f"Predicted: **{_shown(entry.predicted)}**, {verdict}"


def _minute(when: str) -> str:
    """A time to the minute; as it stands where it is none."""
    try:
        return f"{datetime.fromisoformat(when):%Y-%m-%d %H:%M}"
    except ValueError:
        return visible(when)


def _shown(text: str) -> str:
    return escaped(visible(text))
