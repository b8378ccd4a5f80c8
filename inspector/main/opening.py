"""The message in the place of the text while there is none: loading, no prompt, or a failure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from engine.protocol import Failure, Loading
from engine.thread import WITHOUT_MLX
from inspector.display import pad, visible, visible_lines
from inspector.keys import key_for
from inspector.session.setup import Setup
from inspector.state.timeline import Phase, Timeline
from inspector.widgets.canvas import looks_same

STAGES = {
    "import": "starting MLX",
    "download": "downloading",
    "weights": "reading the weights",
    "ranks": "starting the ranks",
    "tokenizer": "reading the tokenizer",
}
BAR = 30
MOST_SHOWN = 2000
"""Characters of a prompt that are shown while it waits: whatever is longer would be laid out with every record."""


def opening(timeline: Timeline, setup: Setup) -> Content:
    """The message, made printable."""
    if timeline.phase is Phase.FAILED and timeline.load_failure is not None:
        failed = f"{visible(setup.load.model)} could not be loaded"
        helps = ("open", "opens another model")
        if timeline.load_failure.hint.endswith(WITHOUT_MLX):
            helps = ("sessions", "shows a saved session")
        return _failed(failed, timeline.load_failure, (helps, ("quit", "quits")))
    if timeline.phase is Phase.EMPTY and timeline.prompts.failure is not None:
        return _failed("The prompt was refused", timeline.prompts.failure, (("prompt", "changes it"),))
    lines = _loading(timeline, setup) if timeline.phase is Phase.LOADING else _empty(setup)
    return Content("\n").join(lines)


def _loading(timeline: Timeline, setup: Setup) -> list[Content]:
    loading = timeline.loading
    lines = [Content.styled(f"Loading {visible(setup.load.model)}", "bold"), Content()]
    lines += [Content(_stage(loading)), *_bar(loading), Content()]
    if loading is not None and loading.warning:
        keys = _keys((("open", "opens another model"), ("quit", "quits")))
        lines += [Content.styled(visible_lines(loading.warning), "$text-warning"), Content(), keys, Content()]
    return [*lines, *_prompt(setup, "The prompt that waits for the model:"), Content(), _offers()]


def _stage(loading: Loading | None) -> str:
    if loading is None:
        return "starting the engine"
    detail = f" · {visible(loading.detail)}" if loading.detail else ""
    return STAGES[loading.stage] + detail


def _bar(loading: Loading | None) -> list[Content]:
    if loading is None or not loading.total:
        return []
    full = BAR * min(loading.done, loading.total) // loading.total
    bar = Content.styled("━" * full, "$primary") + Content.styled("━" * (BAR - full), "$foreground 20%")
    return [bar + Content(f"  {100 * loading.done // loading.total} %")]


def _empty(setup: Setup) -> list[Content]:
    if setup.prompt.text:
        return [*_prompt(setup, "The prompt:"), Content(), _offers()]
    return [
        Content.styled("The model is loaded; there is no prompt yet.", "bold"),
        Content(),
        Content(
            f"Press {key_for('prompt')} to give one: the model reads it (prefill), and then every "
            "token is yours to step."
        ),
        Content(),
        _offers(),
    ]


def _offers() -> Content:
    """Advice to a stranger on things to look at meanwhile."""
    offers = (
        ("lessons", "lessons: predict, do it, and see"),
        ("help", "keys and concepts"),
        ("sessions", "recent sessions"),
    )
    wide = max(cell_len(key_for(id)) for id, _ in offers)
    return Content("\n").join(_keys([offer], wide) for offer in offers)


def _keys(actions: Sequence[tuple[str, str]], wide: int = 0) -> Content:
    """The keys of actions, in so many cells at least, and what they do."""
    return Content("   ").join(
        Content.styled(pad(key_for(id), max(wide, cell_len(key_for(id)))), "bold $text-primary")
        + Content(f" {does}")
        for id, does in actions
    )


def _prompt(setup: Setup, label: str) -> list[Content]:
    if not setup.prompt.text:
        return [Content.styled(f"No prompt was given. Press {key_for('prompt')} to give one.", "$ink-muted")]
    text = setup.prompt.text
    lines = [Content.styled(label, "$ink-muted"), Content(visible_lines(text[:MOST_SHOWN]))]
    if (more := len(text) - MOST_SHOWN) > 0:
        lines.append(Content.styled(f"… and {more:,} characters more", "$ink-muted"))
    return lines


def _failed(what: str, failure: Failure, actions: Sequence[tuple[str, str]]) -> Content:
    """A failure, its reason, and the actions that help; `what` is printable."""
    lines = [
        Content.styled(what, "bold $text-error"),
        Content(visible_lines(failure.message)),
        Content(visible_lines(failure.hint)),
        Content(),
        _keys(actions),
    ]
    return Content("\n").join(lines)


class OpeningPanel(Static, can_focus=True):
    """The panel around that message."""

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.border_title = "Text"
        self._told: Content | None = None

    def show(self, timeline: Timeline, setup: Setup) -> None:
        """Show how far things are."""
        told = opening(timeline, setup)
        if not looks_same(self._told, told):
            self._told = told
            self.update(told, layout=False)  # the text has no part in the panel's size
