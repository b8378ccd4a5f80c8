"""The sampler: the reason for a token, and the picks of other settings."""

from __future__ import annotations

from inspector.widgets.actions import Action, applies, both, dialog_table, fields, leaves, note

SAMPLING_KEYS = dialog_table(
    "While sampling settings are tried",
    *fields("Go from field to field."),
    note("left right", "On the presets: go through them; the fields take their values."),
    Action("sampling.delete_preset", "Delete preset", "Delete a preset of your own: press twice.",
           lambda own: own.delete_preset()),
    *both(("sampling.token_before", "sampling.next_token"), ("Earlier token", "Later token"),
          "Look at the previous or the next token.", lambda own, by: own.look("walk", by), hint="token", worth=3,
          priority=True),
    *both(("sampling.difference_before", "sampling.next_difference"), ("Earlier difference", "Next difference"),
          "Go to the previous or next step that would differ.", lambda own, by: own.look("differing", by),
          hint="difference", worth=2, priority=True),
    Action("sampling.recall", "Recompute", "Compute dropped logits again.",
           lambda own: own.look("recall", 0), hint="recompute", worth=1, priority=True),
    applies("Continue with the settings from the selected token; not in a replay.",
            written="`{dialog.apply}` or `⏎`", hint="apply"),
    leaves("Discard them; nothing has changed.", hint="discard"),
)  # fmt: skip
