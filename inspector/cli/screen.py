"""`inspector` without a subcommand: opens the screen with a new or a resumed session."""

from __future__ import annotations

import argparse
import gc
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import fields

from engine.breakpoints import CONDITIONS, Breakpoints
from engine.errors import EngineError, SettingsError
from engine.protocol import Prefill
from engine.setting import Setting
from engine.settings import LoadSettings, Settings
from inspector import places
from inspector.cli import flags
from inspector.cli.arguments import NO_PROMPT, given, known, request_from
from inspector.cli.exit import OK, flush, leave_at_once, note, output
from inspector.cli.subcommands.generate import SPECULATION, STEERING, speculation_from
from inspector.cli.subcommands.texts import second_model_flags, second_model_from
from inspector.config import own_keys
from inspector.config.directions import steering
from inspector.keys import key_for
from inspector.version import version

if TYPE_CHECKING:
    from inspector.export.recording import Recording
    from inspector.session.playback import Opening

PURPOSE = "Step through a language model's generation, token by token."


def screen_parser() -> flags.Parser:
    keys = (
        "list all actions of the screen, with their ids and keys, where the keys work and what they do, and exit. Keys "
        f'of your own go into {places.config() / own_keys.NAME}: step = "n", or run = ["r", "f5"]; for an action of a '
        'tool\'s own screen "race.again" = "ctrl+n". Faulty lines are reported here and when the screen opens; the '
        "others take effect"
    )
    made = flags.command_parser("", PURPOSE, None, {
        "--models DIR": (f"a directory of models, searched two levels deep, that {key_for('open')} also lists; may be "
                         "repeated (also: INSPECTOR_MODELS)", {"action": "append"}),
        "--version": "print the version and exit",
        **flags.GENERATION, **SPECULATION, **STEERING,
        "breakpoints:": "conditions at which runs stop; they replace the ones remembered from last time",
        **breakpoint_flags(),
        "second model:": "",
        "--second-model MODEL": "compare with a second model, token by token: pocket, a directory, or a hub id "
                                f"({key_for('second_model')} shows both)",
        **second_model_flags("second-model-"),
        "--second-model-system-prompt TEXT": "system prompt for the second model, instead of the conversation's",
        "session:": "",
        "--resume [FILE]": ("continue the last session, or FILE: a path, or a name that `inspector sessions` lists",
                            {"const": ""}),
        "--no-save": "do not save the session (by default each is saved as you work, and the last 50 stay: `inspector "
                     "sessions`)",
        **flags.THEME,
        "lists:": "",
        "--keys": keys.replace("%", "%%"),
        "--plugins": "list the views of other packages that are installed, with their keys or what is wrong, and exit",
        "--jsonl --json": ("one JSON object a line instead of the tables of --keys and --plugins",
                           {"dest": "keys_jsonl"}),
    })  # fmt: skip
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    return made


def run_screen(args: argparse.Namespace) -> int:
    """Open the screen, or list its keys.

    Raises:
        EngineError: There is no terminal, a value is out of range, or there is no such prompt or session.
    """
    if args.version:
        print(f"inspector {version()}", file=output())
        return OK
    if args.keys or args.plugins:
        from inspector.cli.subcommands import lists

        return (lists.list_keys if args.keys else lists.list_plugins)(args.keys_jsonl)
    if args.keys_jsonl:
        raise EngineError("--jsonl has no effect on the screen.", "Use inspector generate, or add --keys.")
    check_terminal(args.prompt == "-")
    if args.models:
        _list_also(args.models)
    trace = _resumed(args)
    request = request_from(args, default_prompt=True)
    second = second_model_from(args, request.load, args.second_model)
    if second is not None and trace is not None:
        raise EngineError(
            "--resume loads the session's own model, which is not known yet: there is nothing to compare with.",
            f"Leave --second-model out; {key_for('second_model')} compares the model with itself in fewer bits.",
        )
    if args.steer is not None and trace is not None:
        raise EngineError(
            "--resume continues the session's own tokens, so there is no prompt after which --steer could begin.",
            f"Leave --steer out; {key_for('steering')} steers from a token on.",
        )
    from inspector.views import TOOLS, with_second_model, with_steering

    tools = TOOLS if second is None else with_second_model(second)
    return run_app(
        request.load,
        request.settings,
        prefill=request.prefill,
        given=None if trace else request.given_settings,
        breakpoints=breakpoints(args),
        save=saved_in(args),
        trace=trace,
        tools=tools if args.steer is None else with_steering(tools, steering(args.steer)),
        theme=args.theme,
        notes=() if trace else request.notes,
        notes_on=(lambda facts: ()) if trace else request.model_known,
        speculation=speculation_from(args),
    )


def saved_in(args: argparse.Namespace) -> Path | None:
    """The folder in which the session is saved; None with --no-save."""
    from inspector.recordings import sessions

    return None if args.no_save else sessions.folder()


def _list_also(directories: Sequence[str]) -> None:
    """Add directories to those that are searched for models.

    Raises:
        EngineError: A name is empty or contains the separator of paths.
    """
    from engine.models_on_disk.models import VARIABLE

    for each in directories:
        if os.pathsep in each or not each:
            message = f"--models can't take {each!r}: it is empty or has a {os.pathsep!r}."
            raise EngineError(message, "Rename it.")
    os.environ[VARIABLE] = os.pathsep.join(filter(None, (*directories, os.environ.get(VARIABLE, ""))))


# ---- breakpoints ------------------------------------------------------------------------------


def breakpoint_flags() -> flags.Flags:
    """The flags of the breakpoints, made from `engine.breakpoints.CONDITIONS`."""
    made: dict[str, tuple[str, dict[str, Any]]] = {}
    for condition in CONDITIONS:
        value = {"text": "TEXT", "regex": "REGEX"}.get(
            condition.form, "N" if condition.kind == "int" else "X"
        )
        bound = f" {value}" if condition.label.endswith(("above", "below")) else ""
        label = f"{condition.label}{bound}: {condition.help}".replace("%", "%%")
        if condition.form == "text":
            label += r"; \n and \t are escapes"
        how: dict[str, Any] = {"type": partial(_read_condition, condition)}
        if condition.kind == "flag":
            value, how = "", flags.NONE
        made[f"{condition.flag} {value}"] = label, {"dest": f"break_{condition.name}", **how}
    together = {"dest": "break_all_of", **flags.NONE}
    return {**made, "--break-all": ("stop only where all conditions hold at once", together)}


def _read_condition(condition: Setting, text: str) -> Any:
    """Parse the value of a condition's flag."""
    try:
        return condition.parse(flags.unescaped(text) if condition.form == "text" else text)
    except SettingsError as error:
        raise argparse.ArgumentTypeError(f"{error.message.removesuffix('.')}") from None


def breakpoints(args: argparse.Namespace) -> Breakpoints | None:
    """The conditions at which runs stop; None, if no flag is given, for the saved breakpoints."""
    values = {field.name: getattr(args, f"break_{field.name}") for field in fields(Breakpoints)}
    given = {name: value for name, value in values.items() if value is not None}
    return Breakpoints(**given) if given else None


# ---- resuming a session -----------------------------------------------------------------------


def _resumed(args: argparse.Namespace) -> Opening | None:
    """The session to resume, with the flags of the model; None without --resume. All else comes from the session.

    Raises:
        EngineError: There is no such session, or a flag of the prompt or the sampler was given.
    """
    if args.resume is None:
        return None
    from inspector.recordings import sessions
    from inspector.session.playback import Opening, checked

    values = given(args)
    prompt = ("prompt", "prompt_file", "system_prompt", "ignore_chat_template", "prompt_logprobs", "messages",
        "chat_template_config", "use_default_chat_template", "prefill_response", "chat", "preset")  # fmt: skip
    if clash := [name for name in (*prompt, *known(Settings, values)) if name in values]:
        raise EngineError(
            f"--resume continues with the session's own prompt and settings, not with --{clash[0].replace('_', '-')}.",
            f"Leave it out; {key_for('sampling')} changes settings, {key_for('prompt')} starts another prompt.",
        )
    return Opening(checked(sessions.find(args.resume)), live=True, load=known(LoadSettings, values))


# ---- checking the terminal, and running the screen in it ---------------------------------------


LEAST_COLUMNS, LEAST_ROWS = 40, 10
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end the screen: the terminal is restored and the session saved before they end the process."""
COLLECT_AFTER = (10_000, 10, 10)
"""Thresholds of the garbage collector while a screen runs: with Python's 700, collections took a seventh of the time
of opening dialogs."""
COLOR_SYSTEMS = ("auto", "standard", "256", "truecolor")
STREAMS = {"stdin": "standard input", "stdout": "standard output", "stderr": "standard error"}


def run_app(
    load: LoadSettings | None = None,
    settings: Settings | None = None,
    *,
    prefill: Prefill = NO_PROMPT,
    theme: str | None = None,
    **given: Any,
) -> int:
    """Run the screen until the user leaves it, or a signal ends it and the process; returns the exit status.

    Args:
        load: The model.
        settings: Settings of the sampler.
        prefill: The prompt.
        theme: Name of the theme; None for the last one.
        given: Other arguments of `InspectorApp`.
    """
    from inspector.app import InspectorApp
    from inspector.recordings import sessions

    app = InspectorApp(load or LoadSettings(), settings or Settings(), prefill, theme=theme or "", **given)
    taken = {each: of for each in ENDING if (of := signal.getsignal(each)) is not signal.SIG_IGN}
    for number in taken:
        signal.signal(number, lambda received, _: app.end_by(received))
    gc.freeze()  # imported modules stay
    gc.set_threshold(*COLLECT_AFTER)
    try:
        app.run()
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: a handler that Python did not set
    if (saved := app.recorder.saved) is not None:
        if app.recorder.notice:
            note(app.recorder.notice)
        name = sessions.name_of(saved) if saved.parent == sessions.folder() else str(saved)
        note(f"Session saved: {saved}")
        note(f"Continue it: inspector --resume {shlex.quote(name)}")
    if app.ended_by is not None:  # as if the signal had no handler
        flush(0)
        signal.signal(app.ended_by, signal.SIG_DFL)
        signal.raise_signal(app.ended_by)
    code = app.return_code or 0
    if not app.closed_in_time:
        leave_at_once(code)
    return code


def check_terminal(
    prompt_from_stdin: bool = False, instead: str = "Without one, use inspector generate."
) -> None:
    """Check that the screen can be drawn here and that its keys can be read.

    A driver named by TEXTUAL_DRIVER needs no terminal: textual-serve's reads and writes pipes.

    Args:
        prompt_from_stdin: Whether the prompt is read from standard input.
        instead: What to run without a terminal, as a sentence.

    Raises:
        EngineError: One of these fails; the hint says what to run or change.
    """
    others = [name for stream, name in STREAMS.items() if not is_terminal(stream)]
    named = "TEXTUAL_DRIVER" in os.environ
    if prompt_from_stdin and STREAMS["stdin"] in others and (named or len(others) == 1):
        raise EngineError(
            "The screen reads its keys from standard input, so the prompt can't come from there.",
            "Use --prompt-file, or inspector generate.",
        )
    if others and not named:
        raise EngineError(f"The screen needs a terminal, and {others[0]} is not one.", instead)
    if not named and os.environ.get("TERM") in ("dumb", "unknown"):
        raise EngineError(f"The screen needs a terminal; TERM is {os.environ['TERM']}.", instead)
    if (colors := os.environ.get("TEXTUAL_COLOR_SYSTEM", "auto")) not in COLOR_SYSTEMS:
        raise EngineError(
            f"TEXTUAL_COLOR_SYSTEM is {colors!r}, which is not a color system.",
            f"Unset it, or use one of {', '.join(COLOR_SYSTEMS)}.",
        )
    if log := os.environ.get("TEXTUAL_LOG"):
        try:
            open(log, "a", encoding="utf-8").close()
        except OSError as error:
            message = f"TEXTUAL_LOG can't be written: {log}: {error.strerror}."
            raise EngineError(message, "Unset it.") from None
    columns, rows = shutil.get_terminal_size()
    if not named and (columns < LEAST_COLUMNS or rows < LEAST_ROWS):
        raise EngineError(
            f"The terminal has {columns} columns and {rows} rows; the screen needs {LEAST_COLUMNS} and {LEAST_ROWS}.",
            "Enlarge it, or use inspector generate.",
        )


def is_terminal(name: str) -> bool:
    """True if a standard stream is a terminal."""
    stream = getattr(sys, name)
    return stream is not None and not stream.closed and bool(stream.isatty())


# ---- a picture of the screen with a recording, drawn without a terminal ------------------------

SETTLING = 8
"""Most drawings until two in a row are equal: a panel may scroll or fold only after it has its size."""


def picture(recording: Recording, size: tuple[int, int], light: bool = False) -> str:
    """The screen with a recording, as SVG. Drawn in another thread, as a notebook already runs an event loop.

    Args:
        recording: Its path is shown, with the chosen token selected, or else the next token.
        size: Columns and rows of the terminal.
        light: Whether to use the light theme.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with _anywhere(), ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(_picture(recording, size, light))).result()


@contextmanager
def _anywhere() -> Iterator[None]:
    """Draw in full color, whatever the terminal can show, and display nothing in a notebook.

    Textual records the screen with a rich console, which displays what it records if it detects a notebook; Textual
    can't pass it `force_jupyter=False` (rich 15).
    """
    import rich.console

    before, in_notebook = dict(os.environ), rich.console._is_jupyter
    rich.console._is_jupyter = lambda: False
    os.environ.update(COLORTERM="truecolor", TERM="xterm-256color")
    os.environ.pop("NO_COLOR", None)
    try:
        yield
    finally:
        rich.console._is_jupyter = in_notebook
        os.environ.clear()
        os.environ.update(before)


async def _picture(recording: Recording, size: tuple[int, int], light: bool) -> str:
    from inspector.app import InspectorApp
    from inspector.config.preferences import Preferences
    from inspector.export.documents import alone
    from inspector.session.client import IdleBackend

    app = InspectorApp(
        recording.load or LoadSettings(),
        recording.settings or Settings(),
        engine=IdleBackend(),
        breakpoints=Breakpoints(),
        theme="light" if light else "dark",
        begins=Preferences(),
    )
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        client = app.controller.client
        client.forget()
        client.timeline = timeline = recording.timeline
        if recording.items and recording.tip != timeline.tip:
            timeline.visit(recording.tip)
        chosen = (place for place, item in enumerate(recording.items) if item.node == recording.chosen)
        timeline.select(next(chosen, None))
        app.main.show()
        drawn = ""
        for _ in range(SETTLING):
            await pilot.pause()
            before, drawn = drawn, app.export_screenshot(title=recording.heading)
            if drawn == before:
                break
        return alone(drawn, recording.made)
