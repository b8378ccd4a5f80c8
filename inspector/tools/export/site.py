"""A folder of pages with an index, which any static host serves: courses, lessons, recordings, the pages of the help.

Each page stands alone, as those of one session and one lesson do; links between them are relative, and no page asks
another host for anything.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from inspector.display import visible
from inspector.lessons.catalogue import shipped
from inspector.lessons.courses import shipped_courses
from inspector.main.elements import element, written
from inspector.main.evidence import ExportPart
from inspector.main.help_pages import PAGES, TOPICS
from inspector.main.help_pages import page as help_page
from inspector.tools.export.documents import web_page
from inspector.tools.export.lesson_page import page as lesson_page
from inspector.tools.export.markup import framed, scrollable
from inspector.tools.export.recording import read

_LESSON = re.compile(r"\.\./lessons/shipped/([\w-]+)\.md")
"""How the page of courses links a lesson's file."""
WHAT = "A step debugger for text generation with language models"


def site(traces: Mapping[str, Path], parts: Sequence[ExportPart]) -> Iterator[tuple[str, str]]:
    """The pages, each by its place in the folder; the index comes last, so that a folder with one is whole.

    Args:
        traces: The recordings, by the names of their pages.
        parts: What tools show of what they found in them.

    Raises:
        EngineError: A recording can't be read.
    """
    lessons, recordings = [], []
    courses = shipped_courses()
    lists_of = (shipped(), *([part.listed for part in each.parts] for each in courses))
    known_lessons = {each.path: each for some in lists_of for each in some}
    for each in known_lessons.values():
        place = f"lessons/{each.path.stem}.html"
        yield place, lesson_page(each.lesson, each.trace, parts)
        minutes = f"{each.lesson.minutes:g} minutes. " if each.lesson.minutes else ""
        lessons.append((place, each.lesson.title, f"{minutes}{each.lesson.about}"))
    for name, trace in traces.items():
        recording = read(trace)
        recording.parts = parts
        place = f"recordings/{name}.html"
        yield place, web_page(recording)
        recordings.append((place, name, "".join(item.text for item in recording.items)[:80]))
    helps = [*((name, title, "") for name, title in PAGES), *TOPICS]
    known = {name for name, *_ in helps}
    for name, title, _ in helps:
        yield f"help/{name}.html", _help(name, title, known)
    told = [(f"help/{name}.html", title, about) for name, title, about in helps]
    taught = [
        (f"help/courses.html#{anchor(each.title)}", each.title, f"{each.minutes:g} minutes. {each.about}")
        for each in courses
    ]
    lists = (("Courses", taught), ("Lessons", lessons), ("Recordings", recordings), ("Help", told))
    yield "index.html", framed("mlx-inspector", WHAT, "".join(map(_listed, lists)))


def _listed(heading_and_rows: tuple[str, Sequence[tuple[str, str, str]]]) -> str:
    heading, rows = heading_and_rows
    items = [
        element(
            "li", element("a", visible(title), href=place), element("span", visible(about)) if about else ""
        )
        for place, title, about in rows
    ]
    return written(element("section", element("h2", heading), element("ul", *items)))


def _help(name: str, title: str, known: Iterable[str]) -> str:
    """A page of the help; what it shows of its text is text, and links lead to other pages or nowhere."""
    text = re.sub(r"<!--.*?-->\n?", "", help_page(name))
    markdown = MarkdownIt("js-default")
    home = posixpath.relpath(".", posixpath.dirname(f"help/{name}")) + "/index.html"
    tokens = markdown.parse(text.partition("\n")[2])
    for place, (token, after) in enumerate(zip(tokens, [*tokens[1:], None], strict=True)):
        if token.type == "heading_open" and after is not None:
            token.attrSet("id", anchor(after.content))
        if token.type == "th_open" and after is not None and not after.content:
            token.tag = tokens[place + 2].tag = "td"  # a screen reader would read out an empty heading
        scrollable(token)
        token.children = [*_linked(token.children or [], name, set(known))]
    body = RendererHTML().render(tokens, markdown.options, {})
    up = written(element("nav", element("a", "All pages", href=home)))
    return framed(title, "The help of mlx-inspector", up + body)


def anchor(heading: str) -> str:
    """The name by which a link leads to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _linked(tokens: Iterable[Token], name: str, known: set[str]) -> Iterator[Token]:
    """The tokens of a line, links to what is not in the folder taken out of it."""
    open_links: list[bool] = []
    for token in tokens:
        if token.type == "link_open":
            href = str(token.attrGet("href"))
            place, _, heading = href.partition("#")
            if lesson := _LESSON.fullmatch(place):
                token.attrSet("href", f"../lessons/{lesson[1]}.html")
                open_links.append(True)
                yield token
                continue
            page = posixpath.normpath(posixpath.join(posixpath.dirname(name), place)).removesuffix(".md")
            kept = href.startswith("https://") or page in known
            open_links.append(kept)
            if not kept:
                continue
            if not href.startswith("https://"):
                token.attrSet(
                    "href", place.removesuffix(".md") + ".html" + (f"#{heading}" if heading else "")
                )
        elif token.type == "link_close" and not open_links.pop():
            continue
        yield token
