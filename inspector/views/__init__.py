"""The views and tools that come with the program: what opens each, in the order of keys, panels, help and finder.

A view's module is imported when it is first opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.protocol import AttributionRead, LensRead, OpenLockstep, Record
from inspector.main.tool import PanelSpec, Tool, ToolActions, live
from inspector.state.inside import Answers
from inspector.state.measured import Measured
from inspector.views.grammar import GrammarActions, GrammarPanel
from inspector.views.lookahead import LookAheadActions
from inspector.views.sampler import TURNED, TURNING, SamplerActions, SamplerPanel
from inspector.widgets.actions import Action, Needs

if TYPE_CHECKING:
    from inspector.config.directions import Steering
    from inspector.lessons.catalogue import Listed
    from inspector.lessons.courses import CoursePlace
    from inspector.served.opening import OpenedRequest

INSIDE = Needs.DISTRIBUTION | Needs.ENGINE


def answered(kind: type[Record]) -> Callable[[ToolActions], bool]:
    """True if there are answers of a class, as a recording may have."""
    return lambda own: bool(own.timeline.of(Answers).asked(kind))


# ---- breakpoints ----

BREAKPOINTS = Tool(
    "breakpoints",
    "Breakpoints",
    make="inspector.views.breakpoints:BreakpointActions",
    actions=(
        Action("skip", "Skip sure tokens",
            "Run while the model is sure: until the next token has less than 50 %, less than all others together. "
            "Breakpoints and stops apply, too; again to pause.",
            lambda own: own.host.answer(own.controller.transport.run(over_sure=True)),
            Needs.DISTRIBUTION | Needs.ENGINE,
            synonyms="next uncertain token, uncertainty, confidence, interesting tokens, fast forward"),
        Action("breakpoints", "Breakpoints",
            "Set where runs stop: at a wide choice, an improbable token, a fork point, a text and more.",
            lambda own: own.open(), Needs.ENGINE,
            hint="breakpoints", worth=5, place=62,
            synonyms="stop condition, conditional breakpoint, stop at, pause at, run until"),
        Action("previous_surprise", "Previous surprise",
            "Look at the previous surprise: a token of 4 bits of surprisal or more, a probability of 6.25 % or less.",
            lambda own: own.surprise(-1), Needs.DISTRIBUTION, looks=True),
        Action("next_surprise", "Next surprise", "Look at the next surprise.", lambda own: own.surprise(1),
            Needs.DISTRIBUTION, looks=True),
        Action("previous_fork", "Previous fork point",
            "Look at the previous fork point: less than 10 % between the first two candidates, or branches.",
            lambda own: own.fork(-1), Needs.DISTRIBUTION, looks=True),
        Action("next_fork", "Next fork point", "Look at the next fork point.", lambda own: own.fork(1),
            Needs.DISTRIBUTION, looks=True),
    ),
    dialogs=("inspector.views.breakpoints:BREAKPOINT_KEYS",),
)  # fmt: skip


# ---- beams ----
from inspector.tools.beams.tool import BEAMS  # noqa: E402

# ---- compare ----
from inspector.tools.compare.tool import COMPARE  # noqa: E402

# ---- find ----
from inspector.tools.find.tool import FIND  # noqa: E402

# ---- lockstep ----
from inspector.tools.lockstep.tool import LOCKSTEP, lockstep  # noqa: E402

# ---- lookahead ----

LOOK_AHEAD = Tool(
    "lookahead",
    "Look ahead",
    LookAheadActions,
    actions=(
        Action("look_ahead", "Look ahead",
            "Show after each candidate how greedy decoding would continue, and the probability of that continuation; "
            "again to hide it.", LookAheadActions.switch, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.lines.known,
            synonyms="lookahead, preview, what comes after, greedy continuation, future tokens", view="look-ahead"),
        Action("take_ahead", "Take look-ahead",
            "Take the highlighted candidate and the tokens that look-ahead shows after it.", LookAheadActions.take,
            Needs.DISTRIBUTION | Needs.ENGINE),
    ),
)  # fmt: skip

# ---- merges ----
from inspector.tools.merges.tool import MERGES  # noqa: E402

# ---- segments ----
from inspector.tools.segments.tool import SEGMENTS  # noqa: E402

# ---- speculation ----
from inspector.tools.speculation.tool import SPECULATION  # noqa: E402

# ---- turns ----

TURNS = Tool(
    "turns",
    "Turns",
    make="inspector.views.turns:TurnActions",
    actions=(
        Action("reply", "Reply",
            "Continue the conversation: add the user's next message after the model's answer, on the same path. "
            "Nothing runs again.", lambda own: own.open(), Needs.DISTRIBUTION | Needs.ENGINE,
            hint=live("reply"), worth=1,
            place=150,
            synonyms="chat, answer, conversation, next message, turn, multi-turn"),
    ),
    dialogs=("inspector.views.turns:TURN_KEYS",),
)  # fmt: skip

# ---- typed_text ----

TYPED_TEXT = Tool(
    "typed_text",
    "Type your own",
    make="inspector.views.typed_text:TypedTextActions",
    actions=(
        Action("own_text", "Type your own",
            "Type a text, special tokens included, in the place of the selected token, on a new branch; the status "
            "line shows its surprisal.", lambda own: own.open(),
            Needs.DISTRIBUTION | Needs.ENGINE, hint=live("type"), worth=2, place=70,
            synonyms="insert text, write text, force text, edit text, prefill the answer, inject text"),
    ),
    dialogs=("inspector.views.typed_text:OWN_TEXT_KEYS",),
)  # fmt: skip

# ---- race ----

RACE = Tool(
    "race",
    "Race",
    actions=(
        Action("race", "Race", "Race with a KV cache against without: the same tokens side by side, both measured.",
            needs=INSIDE, looks=True, view="race", opens="inspector.views.race:RaceView",
            recorded=lambda own: (race := own.timeline.of(Measured).race) is not None and bool(race.steps),
            synonyms="with and without kv cache, no kv cache, speed of the kv cache, why a cache"),
    ),
    exports=("inspector.documents.race:RACE_PART",),
)  # fmt: skip

# ---- batch ----

# ---- attention ----
from inspector.tools.attention.tool import ATTENTION  # noqa: E402
from inspector.tools.batch.tool import BATCH  # noqa: E402

# ---- costs ----
from inspector.tools.costs.tool import COSTS  # noqa: E402

# ---- draws ----
from inspector.tools.draws.tool import DRAWS  # noqa: E402

# ---- ranks ----
from inspector.tools.ranks.tool import RANKS  # noqa: E402

# ---- scores ----
from inspector.tools.scores.tool import SCORES  # noqa: E402

# ---- lens ----

LENS = Tool(
    "lens",
    "Logit lens",
    actions=(
        Action("lens", "Lens", "Show what each layer would predict, read by the model's last norm and output matrix.",
            needs=INSIDE, recorded=answered(LensRead), looks=True, view="lens", opens="inspector.views.lens:Lens",
            synonyms="logit lens, early exit, intermediate layers, layer predictions, unembed"),
    ),
    exports=("inspector.documents.lens:LENS_PART",),
)  # fmt: skip

# ---- attribution ----

ATTRIBUTION = Tool(
    "attribution",
    "Contributions",
    actions=(
        Action("attribution", "Contributions",
            "Show what each layer, attention, MLP and head adds to the logit of a token.",
            needs=INSIDE, recorded=answered(AttributionRead), looks=True, view="parts",
            opens="inspector.views.attribution:Contributions",
            synonyms="direct logit attribution, feature attribution, saliency, importance, which part matters, "
            "logit difference"),
    ),
    exports=("inspector.documents.attribution:CONTRIBUTIONS_PART",),
)  # fmt: skip

# ---- gradients ----

# ---- copy ----
from inspector.tools.copy.tool import COPY  # noqa: E402

# ---- export ----
from inspector.tools.export.tool import EXPORT  # noqa: E402
from inspector.tools.gradients.tool import GRADIENTS  # noqa: E402

# ---- grammar ----

GRAMMAR = Tool(
    "grammar",
    "Grammar",
    GrammarActions,
    actions=(
        Action("grammar", "Grammar",
            "Make the text match a regular expression, a JSON schema, a grammar or one of several texts; again to "
            "change or remove it.", GrammarActions.open, Needs.ENGINE,
            synonyms="json, json schema, regex, regular expression, structured output, constrained decoding, "
            "constrained generation, lark", view="constrain…"),
        Action("grammar_expects", "What the grammar expects",
            "Show which tokens the grammar allows here, how probable the model finds them, and whether the text may "
            "end. "
            "Esc goes back.", lambda own: own.host.go_to("grammar"), Needs.DISTRIBUTION, looks=True,
            synonyms="allowed tokens, token mask, grammar mask", view="grammar"),
    ),
    dialogs=("inspector.views.grammar_dialog:GRAMMAR_KEYS",),
    panel=PanelSpec(GrammarPanel, "Grammar", "Grammar"),
)  # fmt: skip

# ---- interventions ----
from inspector.tools.interventions.tool import INTERVENTIONS  # noqa: E402

# ---- lessons ----
from inspector.tools.lessons.tool import LESSONS, lessons  # noqa: E402

# ---- marks ----
from inspector.tools.marks.tool import MARKS  # noqa: E402

# ---- modules ----
from inspector.tools.modules.tool import MODULES  # noqa: E402

# ---- positions ----
from inspector.tools.positions.tool import POSITIONS  # noqa: E402

# ---- recordings ----
from inspector.tools.recordings.tool import RECORDINGS  # noqa: E402

# ---- sampler ----

SAMPLER = Tool(
    "sampler",
    "Why this token",
    SamplerActions,
    actions=(
        Action("why", "Why this token",
            "Show the sampler stage by stage: why this token was chosen. Esc goes back.",
            lambda own: own.host.go_to("sampler"), Needs.DISTRIBUTION, looks=True,
            synonyms="sampler stages, explain this token, reason, how was it chosen, sampling steps, the draw",
            view="stages"),
        Action("other_model", "Other model",
            "With a second model: show why the other model takes its token, with the same draw.",
            lambda own: own.other_model(), Needs.DISTRIBUTION,
            hint=lambda own: own.other_word(), worth=8, place=91,
            looks=True, synonyms="second model, other model, why the second model"),
        Action("sampling", "Sampling",
            "Change temperature, top-p, seed and the other sampling settings, and see at once what they would "
            "have picked.", lambda own: own.sampling(), Needs.ENGINE, recorded=lambda own: bool(own.timeline.rows),
            hint=live("sampling"), worth=4, place=130,
            synonyms="sampling settings, sampler settings, preset, presets, generation parameters, hyperparameters",
            view="settings…"),
    ),
    panel=PanelSpec(SamplerPanel, "Why this token", "Sampler"),
    contexts=(TURNED, TURNING),
    dialogs=("inspector.views.sampling_dialog:SAMPLING_KEYS",),
)  # fmt: skip

# ---- served ----
from inspector.tools.served.tool import SERVED, served  # noqa: E402

# ---- steering ----
from inspector.tools.steering.tool import STEERING, steered  # noqa: E402

# ---- training ----
from inspector.tools.training.tool import TRAINING  # noqa: E402

# ---- tree ----
from inspector.tools.tree.tool import TREE  # noqa: E402

# ---- all of them ----

TOOLS: tuple[Tool, ...] = (
    BREAKPOINTS,
    FIND,
    TYPED_TEXT,
    TURNS,
    COMPARE,
    BEAMS,
    LOOK_AHEAD,
    SEGMENTS,
    MERGES,
    SPECULATION,
    LOCKSTEP,
    RACE,
    BATCH,
    DRAWS,
    COSTS,
    RANKS,
    ATTENTION,
    SCORES,
    LENS,
    ATTRIBUTION,
    GRADIENTS,
    INTERVENTIONS,
    STEERING,
    POSITIONS,
    MODULES,
    SAMPLER,
    SERVED,
    TREE,
    GRAMMAR,
    MARKS,
    COPY,
    EXPORT,
    RECORDINGS,
    LESSONS,
    TRAINING,
)

FOLLOWING = tuple(tool for tool in TOOLS if tool not in (BREAKPOINTS, EXPORT, RECORDINGS, LESSONS, TRAINING))
"""The tools of a program that follows a session of somebody else: none that writes, or opens anything else."""


def with_lesson(
    listed: Listed, present: bool = False, beat: int | None = None, course: CoursePlace | None = None
) -> tuple[Tool, ...]:
    """The tools of a program that begins with a lesson.

    Args:
        listed: The lesson.
        present: Whether to present it.
        beat: The one to begin with, from 0; None for where it was left, or for the first one before a class.
        course: The course that the lesson is taken in; None for none.
    """
    return tuple(lessons(listed, present, beat, course) if tool is LESSONS else tool for tool in TOOLS)


def with_against(against: OpenLockstep) -> tuple[Tool, ...]:
    """The tools of a program that begins with a second model.

    Args:
        against: The second model.
    """
    return tuple(lockstep(against) if tool is LOCKSTEP else tool for tool in TOOLS)


def with_steering(tools: tuple[Tool, ...], how: Steering) -> tuple[Tool, ...]:
    """The tools of a program whose first completion is steered.

    Args:
        tools: All of them.
        how: By what.
    """
    return tuple(steered(how) if tool is STEERING else tool for tool in tools)


def with_request(opened: OpenedRequest) -> tuple[Tool, ...]:
    """The tools of a program that begins with a request of a server.

    Args:
        opened: The request.
    """
    return tuple(served(opened) if tool is SERVED else tool for tool in TOOLS)
