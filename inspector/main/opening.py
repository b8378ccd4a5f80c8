"""The message while there is no text: loading, no prompt, or a failure."""

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
OFFERS = (
    ("lessons", "lessons: predict, do it, and see"),
    ("help", "keys and concepts"),
    ("sessions", "recent sessions"),
)
"""Advice to a stranger on things to look at meanwhile."""
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
    if timeline.phase is Phase.LOADING:
        lines = _loading(timeline.loading, setup)
    elif setup.prompt.text:
        lines = _prompt(setup, "The prompt:")
    else:
        press = f"Press {key_for('prompt')} to give one: the model reads it (prefill)"
        lines = [Content.styled("The model is loaded; there is no prompt yet.", "bold"), Content()]
        lines.append(Content(f"{press}, and then every token is yours to step."))
    wide = max(cell_len(key_for(id)) for id, _ in OFFERS)
    return Content("\n").join([*lines, Content(), *(_keys([offer], wide) for offer in OFFERS)])


def _loading(loading: Loading | None, setup: Setup) -> list[Content]:
    stage = "starting the engine"
    if loading is not None:
        stage = STAGES[loading.stage] + (f" · {visible(loading.detail)}" if loading.detail else "")
    lines = [Content.styled(f"Loading {visible(setup.load.model)}", "bold"), Content(), Content(stage)]
    if loading is not None and loading.total:
        full = BAR * min(loading.done, loading.total) // loading.total
        bar = Content.styled("━" * full, "$primary") + Content.styled("━" * (BAR - full), "$foreground 20%")
        lines.append(bar + Content(f"  {100 * loading.done // loading.total} %"))
    lines.append(Content())
    if loading is not None and loading.warning:
        keys = _keys((("open", "opens another model"), ("quit", "quits")))
        lines += [Content.styled(visible_lines(loading.warning), "$text-warning"), Content(), keys, Content()]
    return [*lines, *_prompt(setup, "The prompt that waits for the model:")]


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
    why, advice = Content(visible_lines(failure.message)), Content(visible_lines(failure.hint))
    lines = [Content.styled(what, "bold $text-error"), why, advice, Content(), _keys(actions)]
    return Content("\n").join(lines)


class OpeningPanel(Static, can_focus=True):
    """The panel around that message."""

    BORDER_TITLE = "Text"
    _told: Content | None = None

    def show(self, timeline: Timeline, setup: Setup) -> None:
        """Show how far things are."""
        told = opening(timeline, setup)
        if not looks_same(self._told, told):
            self._told = told
            self.update(told, layout=False)  # the text has no part in the panel's size
