"""The one table of keys: bindings, command palette and the key help are all made from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from textual.binding import Binding, BindingType

STEP, LOOK, BRANCH, SET_UP, SCREEN = "Step and run", "Look around", "Branch", "Set up", "Screen"


@dataclass(frozen=True, slots=True)
class Key:
    """One action of the main screen."""

    id: str
    keys: str
    """As Textual names them, separated by commas; the first one is shown."""
    shown: str
    """As a person reads it."""
    action: str
    label: str
    """One or two words, for the palette."""
    group: str
    tooltip: str
    """One sentence, for the palette, the tooltip and the help."""
    needs_prompt: bool = False
    """Greyed until a prompt is in the cache."""

    @property
    def binding(self) -> Binding:
        """As Textual wants it. Priority, since a focused panel would scroll on the arrow keys."""
        return Binding(
            self.keys,
            self.action,
            self.label,
            id=self.id,
            show=False,
            key_display=self.shown,
            tooltip=self.tooltip,
            group=Binding.Group(self.group),
            priority=True,
        )


KEYS: tuple[Key, ...] = (
    Key("step", "space", "space", "step", "Step", STEP,
        "Take the token that the sampler picked; at an older token walk one forward; while running, "
        "pause.", needs_prompt=True),
    Key("run", "r", "r", "run", "Run", STEP,
        "Step on until a stop is reached; again to pause.", needs_prompt=True),
    Key("skip", "n", "n", "skip", "Skip sure tokens", STEP,
        "Run over the tokens that the model is sure of, to where the one to come has less than 50 %: less than all "
        "others together. Breakpoints and stops hold too; again to pause.", needs_prompt=True),
    Key("breakpoints", "b", "b", "breakpoints", "Breakpoints", STEP,
        "Set where runs stop: at a wide choice, an improbable token, a fork point, a text and more."),
    Key("stop", "escape", "esc", "stop", "Stop", STEP,
        "Pause the run, stop the prefill or a look ahead, or leave the enlarged panel; notices go too."),
    Key("faster", "plus,equals_sign", "+", "pace(1)", "Faster", STEP,
        "Run at a faster pace: 1, 2, 5, 10, 20 steps a second or as fast as it goes; in a prefill, take larger "
        "chunks."),
    Key("slower", "minus", "-", "pace(-1)", "Slower", STEP, "Run at a slower pace; in a prefill, take smaller chunks."),
    Key("above", "up", "↑", "highlight(-1)", "Candidate above", BRANCH,
        "Highlight the candidate above.", needs_prompt=True),
    Key("below", "down", "↓", "highlight(1)", "Candidate below", BRANCH,
        "Highlight the candidate below.", needs_prompt=True),
    Key("choose", "enter", "⏎", "choose", "Choose", BRANCH,
        "Take the highlighted candidate at the token that is looked at: a branch of its own, and the "
        "text goes on from there.", needs_prompt=True),
    Key("find", "slash", "/", "find", "Find a token", BRANCH,
        "Search the vocabulary at the token that is looked at, by a part of the text, id or bytes, and take what is "
        "found.", needs_prompt=True),
    Key("own_text", "a", "a", "own_text", "Type your own", BRANCH,
        "Type a text, special tokens included, in the place of the token that is looked at: a branch of its own, and "
        "the status line tells what the model thought of it.", needs_prompt=True),
    Key("take_back", "backspace", "⌫", "take_back", "Take back", BRANCH,
        "Take back the last token of the completion; its branch is kept.", needs_prompt=True),
    Key("previous_branch", "left_square_bracket", "[", "branch(-1)", "Branch before", BRANCH,
        "Go to the branch before at this token.", needs_prompt=True),
    Key("next_branch", "right_square_bracket", "]", "branch(1)", "Next branch", BRANCH,
        "Go to the next branch at this token.", needs_prompt=True),
    Key("compare", "c", "c", "compare", "Compare", BRANCH,
        "Set the current path against another branch, token for token: where they part, where they meet "
        "again, and what each is worth.", needs_prompt=True),
    Key("beams", "B", "B", "beams", "Beam search", BRANCH,
        "Follow several continuations at once from the token that is looked at, step by step or to the end; a search "
        "that waits goes on.", needs_prompt=True),
    Key("look_ahead", "l", "l", "look_ahead", "Look ahead", BRANCH,
        "Show behind each candidate what greedy decoding would bring after it, and the probability of all of it "
        "together; again to hide it.", needs_prompt=True),
    Key("take_ahead", "L", "L", "take_ahead", "Take look-ahead", BRANCH,
        "Take the highlighted candidate and the tokens that look-ahead shows behind it.", needs_prompt=True),
    Key("reroll", "d", "d", "reroll", "Draw again", BRANCH,
        "Draw again with the next random number: the token to come, or at an older step a sibling of it.",
        needs_prompt=True),
    Key("verify", "v", "v", "verify", "Verify", BRANCH,
        "Recompute the path from nothing and compare it with the KV cache.", needs_prompt=True),
    Key("bookmark", "asterisk", "*", "bookmark", "Bookmark", BRANCH,
        "Set a bookmark on the selected token, or in the tree on the branch; again to take it off.",
        needs_prompt=True),
    Key("name", "N", "N", "name", "Name and note", BRANCH,
        "Write a name, a note and a caption on the selected token, or in the tree on the branch.",
        needs_prompt=True),
    Key("delete", "x,delete", "x", "delete_branch", "Delete branch", BRANCH,
        "Delete the branch under the tree's cursor with all below it; u brings it back.", needs_prompt=True),
    Key("undelete", "u", "u", "undelete", "Undo deletion", BRANCH,
        "Bring back what was deleted last; again for what was deleted before.", needs_prompt=True),
    Key("earlier", "left", "←", "walk(-1)", "Earlier", LOOK,
        "Look at the token before.", needs_prompt=True),
    Key("later", "right", "→", "walk(1)", "Later", LOOK, "Look at the token after.", needs_prompt=True),
    Key("ten_earlier", "pageup", "pgup", "walk(-10)", "Ten earlier", LOOK,
        "Look ten tokens back.", needs_prompt=True),
    Key("ten_later", "pagedown", "pgdn", "walk(10)", "Ten later", LOOK,
        "Look ten tokens ahead.", needs_prompt=True),
    Key("first", "home", "home", "first", "First", LOOK,
        "Look at the first token of the completion; again for the first of the prompt.", needs_prompt=True),
    Key("tip", "end", "end", "tip", "Tip", LOOK, "Follow the tip: the token to come.", needs_prompt=True),
    Key("jump", "g", "g", "jump", "Jump", LOOK, "Jump to a step by its number.", needs_prompt=True),
    Key("previous_surprise", "comma", ",", "surprise(-1)", "Surprise before", LOOK,
        "Look at the surprise before: a token of 4 bits of surprisal or more, a probability of 6.25 % or less.",
        needs_prompt=True),
    Key("next_surprise", "full_stop", ".", "surprise(1)", "Next surprise", LOOK,
        "Look at the next surprise.", needs_prompt=True),
    Key("previous_fork", "less_than_sign", "<", "fork(-1)", "Fork point before", LOOK,
        "Look at the fork point before: less than 10 % between the first two candidates, or branches.",
        needs_prompt=True),
    Key("next_fork", "greater_than_sign", ">", "fork(1)", "Next fork point", LOOK,
        "Look at the next fork point.", needs_prompt=True),
    Key("race", "z", "z", "race", "Race", LOOK,
        "Race with the KV cache against without: the same tokens side by side, both measured.",
        needs_prompt=True),
    Key("profile", "P", "P", "profile", "Take a step apart", LOOK,
        "Measure the parts of a step with fences between them, its layers, and where it stands under the machine's "
        "roofline.", needs_prompt=True),
    Key("compare_kv", "Q", "Q", "compare_kv", "Quantized KV", LOOK,
        "Compare the KV cache with quantized ones: bytes, and how far the logits change.", needs_prompt=True),
    Key("sweep", "y", "y", "sweep", "Sweeps", LOOK,
        "Measure time to first token over the prompt's length, time per token over the context's, throughput over the "
        "batch, and what inspection costs."),
    Key("why", "w", "w", "why", "Why this token", LOOK,
        "Show the sampler stage by stage: why this token was chosen. Again, or esc, to go back.",
        needs_prompt=True),
    Key("tree", "t", "t", "tree", "Tree", LOOK,
        "Show the tree of branches. Again, or esc, to go back.", needs_prompt=True),
    Key("recall", "ctrl+r", "ctrl+r", "recall", "Recompute logits", LOOK,
        "Compute logits again that were dropped, where the sampler's stages need them.", needs_prompt=True),
    Key("metric", "m", "m", "metric(1)", "Colour", LOOK,
        "Colour the text by the next metric: probability, surprisal, entropy, rank, off."),
    Key("metric_back", "M", "M", "metric(-1)", "Colour back", LOOK,
        "Colour the text by the metric before."),
    Key("prompt", "p", "p", "prompt", "Prompt", SET_UP,
        "Give another prompt, raw or through the chat template."),
    Key("sampling", "s", "s", "sampling", "Sampling", SET_UP,
        "Change temperature, top-p, seed and the other sampling settings, and see at once what they would "
        "have picked."),
    Key("open", "o", "o", "open", "Open model", SET_UP,
        "Open another model: a directory, a hub id or pocket."),
    Key("facts", "i", "i", "facts", "Model facts", SET_UP, "Show what is known of the model."),
    Key("export", "E", "E", "export", "Export", SET_UP,
        "Make a document of the session: a web page to share, Markdown, CSV, plain text, or a picture of the screen.",
        needs_prompt=True),
    Key("go_live", "G", "G", "go_live", "Go on live", SET_UP,
        "In a replay: load the model, if it is the recorded one, and step on from what is on show."),
    Key("save_as", "ctrl+s", "ctrl+s", "save_as", "Save as", SET_UP,
        "Save the session, or what is on show of a recording, to a file of your own."),
    Key("sessions", "ctrl+o", "ctrl+o", "sessions", "Recent sessions", SET_UP,
        "Look at a recent session, and go on with it."),
    Key("next_panel", "tab", "tab", "panel_after(1)", "Next panel", SCREEN, "Go to the next panel."),
    Key("panel_before", "shift+tab", "shift+tab", "panel_after(-1)", "Panel before", SCREEN,
        "Go to the panel before."),
    Key("panel_text", "1", "1", "panel(0)", "Text", SCREEN, "Go to the text."),
    Key("panel_candidates", "2", "2", "panel(1)", "Candidates", SCREEN, "Go to the candidates."),
    Key("panel_steps", "3", "3", "panel(2)", "Steps", SCREEN, "Go to the steps."),
    Key("panel_kv", "4", "4", "panel(3)", "KV cache", SCREEN, "Go to the KV cache."),
    Key("panel_time", "5", "5", "panel(4)", "Time", SCREEN, "Go to the timings."),
    Key("panel_sampler", "6", "6", "panel(5)", "Sampler", SCREEN, "Go to the sampler."),
    Key("panel_tree", "7", "7", "panel(6)", "Tree panel", SCREEN, "Go to the tree."),
    Key("enlarge", "f", "f", "enlarge", "Enlarge", SCREEN,
        "Give the current panel the whole screen, or back."),
    Key("theme", "T", "T", "theme", "Dark or light", SCREEN,
        "Switch between the dark and the light theme."),
    Key("help", "question_mark", "?", "help", "Help", SCREEN,
        "Show the keys and what the panels mean."),
    Key("quit", "q", "q", "app.quit", "Quit", SCREEN,
        "Leave; ctrl+q does so from everywhere."),
)  # fmt: skip


def bindings() -> list[BindingType]:
    """The bindings of the main screen."""
    return [key.binding for key in KEYS]


def actions_needing_prompt() -> frozenset[str]:
    """Names of the actions that mean nothing until a prompt is in the cache."""
    return frozenset(key.action.partition("(")[0] for key in KEYS if key.needs_prompt)


def actions_looking() -> frozenset[str]:
    """Names of the actions that only look at what is there."""
    return frozenset(key.action.partition("(")[0] for key in KEYS if key.group == LOOK)


def keys_markdown() -> str:
    """The key help, as `inspector/help/keys.md` holds it."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Keys"
    for group, keys in groupby(KEYS, key=lambda key: key.group):
        yield from ("", f"## {group}", "", "| key | what it does |", "|---|---|")
        yield from (f"| `{key.shown}` | **{key.label}.** {key.tooltip} |" for key in keys)
    yield from ("", "## Mouse", "")
    yield "Click a token in the text or in the steps to look at it; click a candidate to choose it."
    yield from ("", "## In the tree", "", "| key | what it does |", "|---|---|")
    yield "| `↑` `↓` `pgup` `pgdn` | Go from branch to branch. |"
    yield "| `home` `end` | Go to the first branch, to the one that the path ends in. |"
    yield "| `←` `→` | Fold a branch, or go to the one above; unfold it, or go to the first below. |"
    yield "| `⏎` | Go to the branch's end, as a second click on it does. |"
    yield from ("", "## While branches are compared", "", "| key | what it does |", "|---|---|")
    yield "| `↑` `↓` `pgup` `pgdn` | Walk through the tokens. |"
    yield "| `home` `end` | Go to where they part, then to the first token; to the last one. |"
    yield "| `n` `N` | Go to where they meet or part next, or did before. |"
    yield "| `tab` `←` `→` | Go to the other side. |"
    yield "| `[` `]` | Compare with the branch before or the next one. |"
    yield "| `⏎` | Go to the token under the cursor, on its branch. |"
    yield "| `esc` | Go back. |"
    yield from ("", "## In a beam search", "", "| key | what it does |", "|---|---|")
    yield "| `space` | Let every beam grow by a token; while the search runs, pause. |"
    yield "| `r` | Search to the end; again to pause. |"
    yield "| `↑` `↓` | Highlight another beam. |"
    yield "| `⏎` | Go to the highlighted beam: it is a branch of the tree. |"
    yield "| `←` `→` `pgup` `pgdn` | See the search as it was a step before or after, or ten of them. |"
    yield "| `home` `end` | See it after its first step, or as it stands. |"
    yield "| `tab` | Change between list, tree and text. |"
    yield "| `n` | Set up another search; `⏎` starts it. |"
    yield "| `esc` | Go back; the search waits, and `B` goes on with it. |"
    yield from ("", "## In a replay", "", "| key | what it does |", "|---|---|")
    yield "| `space` | Show the next step; while it plays, pause. |"
    yield "| `r` | Play it at the recorded pace, at its end from the start; again to pause. |"
    yield "| `+` `-` | Play faster or slower: a quarter of the recorded pace up to as fast as possible. |"
    yield "| `⌫` | Go back to what was there a step before. |"
    yield "| `⏎` `[` `]` | Go to another branch that was recorded. |"
    yield "| `/` | Search among the candidates that were recorded. |"
    yield "| `G` | Go on live: load the model, compare it with the recording, step on. |"
    yield "| `o` | Go on live with a model that lies elsewhere. |"
    yield from ("", "## In dialogs", "")
    yield "`tab` goes from field to field, `ctrl+s` applies, `esc` leaves. A prompt that was typed is kept."
    yield from ("", "## While sampling settings are tried", "", "| key | what it does |", "|---|---|")
    yield "| `↑` `↓` | Go from field to field. |"
    yield "| `←` `→` | On the presets: go through them; the fields take their values. |"
    yield "| `del` | On a preset of your own: delete it, when pressed twice. |"
    yield "| `shift+↑` `shift+↓` | Look at the token before or after. |"
    yield "| `pgup` `pgdn` | Look at the step before or after that would differ. |"
    yield "| `ctrl+r` | Compute logits again that were dropped. |"
    yield "| `ctrl+s` or `⏎` | Go on with the settings, from the token that is looked at. |"
    yield "| `esc` | Discard them; everything is as it was. |"
    yield from ("", "## While a token is searched", "", "| key | what it does |", "|---|---|")
    yield "| `↑` `↓` `pgup` `pgdn` | Go through what was found, the most probable first. |"
    yield "| `⏎` | Take it, as a second click on it does. |"
    yield "| `ctrl+r` | Compute logits that are not kept, as those inside a prompt are not. |"
    yield "| `esc` | Leave; what was typed is remembered. |"
    yield from ("", "## While a text of your own is typed", "", "| key | what it does |", "|---|---|")
    yield "| `⏎` or `ctrl+s` | Insert it. |"
    yield "| `ctrl+n` | Begin a new line. |"
    yield "| `esc` | Leave; what was typed is kept. |"
    yield from ("", "## Everywhere", "")
    yield "`ctrl+p` opens the command palette: every action by name. `ctrl+q` quits."
