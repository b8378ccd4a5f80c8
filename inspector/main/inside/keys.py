"""The keys that all screens share which look inside the model."""

from __future__ import annotations

from operator import attrgetter

from msgspec.structs import replace

from inspector.widgets.actions import HELP, Action, ActionTable, Lack, both, note, screen_table

SCROLLS = note("pageup pagedown", "Scroll.")
NO_ATTENTION = Lack("attends", "This model has no attention: it keeps states. {Experts} shows them")


def walking(help: str = "Look at another token.") -> tuple[Action, ...]:
    """The actions that go along the text, as on the main screen.

    Args:
        help: The sentence about them.
    """
    return (
        *both(("earlier", "later"), ("Previous token", "Next token"), help, lambda own, by: own.walk(by), hint="token",
              worth=8, place=81),
        Action("first", "First token", help, lambda own: own.look_at(1)),
        Action("tip", "Last token", help, lambda own: own.look_at(None)),
    )  # fmt: skip


def inside_table(
    title: str,
    *actions: Action,
    text: str = "",
    leave: str = "Go back; a computation stops.",
    shared: bool = True,
    told: bool = True,
) -> ActionTable:
    """The table of a screen that looks inside the model.

    Args:
        title: Of its section in the help.
        actions: Its own.
        text: What the help says besides.
        leave: Of the key that leaves.
        shared: Whether the section has rows for what all these screens can do.
        told: Whether the help has a section for it.
    """
    table = screen_table(
        title,
        *actions,
        Action("other_model", "Other model",
               "While there is a second model: look at the same token in the other one of the two.",
               lambda own: own.other_model(), hint=attrgetter("other_word"), worth=7, place=83, listed=shared),
        replace(HELP, worth=3),
        Action("inside.leave", "Back", leave, lambda own: own.leave(), hint="back", worth=9, place=93, listed=shared),
        text=text,
    )  # fmt: skip
    return replace(table, told=told)
