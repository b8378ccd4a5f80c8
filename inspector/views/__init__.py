"""The views and tools that come with the program: what opens each, in the order of keys, panels, help and finder.

A view's module is imported when it is first opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.protocol import AttributionRead, LensRead, OpenLockstep, Record
from inspector.main.tool import PanelSpec, Tool, ToolActions, replayed
from inspector.state.inside import Answers
from inspector.state.lockstep import LockstepSoFar
from inspector.state.measured import Measured
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

# ---- beams ----
from inspector.tools.beams.tool import BEAMS  # noqa: E402
from inspector.tools.breakpoints.tool import BREAKPOINTS  # noqa: E402

# ---- compare ----

COMPARE = Tool(
    "compare",
    "Compare branches",
    actions=(
        Action("compare", "Compare",
            "Compare the current path with another branch, token by token: where they part, where they meet again, "
            "and the logprob of each.", needs=Needs.DISTRIBUTION, hint=replayed("compare"), worth=4, place=130,
            opens="inspector.views.compare:CompareView", view="compare",
            synonyms="diff, compare branches, difference of two branches, side by side"),
    ),
)  # fmt: skip

# ---- find ----
from inspector.tools.find.tool import FIND  # noqa: E402

# ---- lockstep ----

LOCKSTEP = Tool(
    "lockstep",
    "Lockstep",
    actions=(
        Action("lockstep", "Lockstep", "Compare with a second model: one text, both distributions at each token.",
            needs=INSIDE, recorded=lambda own: own.timeline.of(LockstepSoFar).opened is not None, looks=True,
            opens="inspector.views.lockstep:LockstepView", view="models",
            synonyms="two models, second model, other model, compare models, quantized model, "
            "compare with the 4-bit model, lora, adapter, fine-tuned model, kl divergence, "
            "base against chat model"),
    ),
    exports=("inspector.documents.lockstep:LOCKSTEP_PART",),
)  # fmt: skip

# ---- lookahead ----
from inspector.tools.lookahead.tool import LOOK_AHEAD  # noqa: E402

# ---- merges ----

MERGES = Tool(
    "merges",
    "Tokenizer",
    actions=(
        Action("merges", "Merges",
            "Show how a word became its tokens, merge by merge, or compare two tokenizers over the text.",
            needs=Needs.DISTRIBUTION, looks=True, view="pieces", opens="inspector.views.merges:MergesView",
            synonyms="merges, merge ladder, byte pair encoding, bpe, unigram, wordpiece, sentencepiece, subwords, "
            "compare tokenizers"),
    ),
    exports=("inspector.documents.merges:MERGES_PART",),
)  # fmt: skip

# ---- segments ----
from inspector.views.tool_calls import ToolCallChecks  # noqa: E402

SEGMENTS = Tool(
    "segments",
    "Segments",
    ToolCallChecks,
    actions=(
        Action("segments", "Segments",
            "Show the segments: system, user, thinking, answer, tool calls and results, with the tokens, time and "
            "surprisal of each; go from one to the next, or fold one in the text.",
            needs=Needs.DISTRIBUTION, looks=True, opens="inspector.views.segments:SegmentsView", view="segments",
            synonyms="reasoning, thinking, thoughts, tool calls, function calls, roles, chat template, fold, "
            "cost of thinking, tokens by role, harmony, channels"),
    ),
    exports=("inspector.documents.segments:SEGMENTS_PART",),
)  # fmt: skip


# ---- speculation ----
from inspector.tools.speculation.tool import SPECULATION  # noqa: E402

# ---- turns ----
from inspector.tools.turns.tool import TURNS  # noqa: E402

# ---- typed_text ----
from inspector.tools.typed_text.tool import TYPED_TEXT  # noqa: E402

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
from inspector.tools.grammar.tool import GRAMMAR  # noqa: E402

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
from inspector.tools.sampler.tool import SAMPLER  # noqa: E402

# ---- served ----
from inspector.tools.served.tool import SERVED, served  # noqa: E402

# ---- steering ----
from inspector.tools.steering.tool import STEERING, steered  # noqa: E402

# ---- training ----
from inspector.tools.training.tool import TRAINING  # noqa: E402

# ---- tree ----
from inspector.views.tree import TREE_PANEL, TreeActions, TreePanel  # noqa: E402

TREE = Tool(
    "tree",
    "Tree",
    TreeActions,
    actions=(
        Action("tree", "Tree", "Show the tree of branches. Esc goes back.",
            lambda own: own.host.go_to("tree"),
            Needs.DISTRIBUTION, looks=True,
            synonyms="branches, alternatives, versions, all branches, perplexity, token tree", view="tree"),
        Action("filter", "Filter tree",
            "Show only branches of the tree that contain a text or a bookmark; esc shows all again.",
            TreeActions.filter, Needs.DISTRIBUTION, looks=True),
        Action("bookmark", "Bookmark",
            "Set a bookmark on the selected token, or in the tree on the branch; again to remove it.",
            TreeActions.bookmark, Needs.DISTRIBUTION, synonyms="star, remember this token"),
        Action("name", "Name and note",
            "Write a name, a note and a caption on the selected token, or in the tree on the branch.",
            TreeActions.name, Needs.DISTRIBUTION,
            synonyms="add note, annotate, comment, caption, rename branch"),
        Action("delete", "Delete branch",
            "Delete the branch under the tree's cursor and all below it; {undo} brings them back.",
            TreeActions.delete, Needs.DISTRIBUTION),
    ),
    panel=PanelSpec(TreePanel, "Tree", "Tree"),
    contexts=(TREE_PANEL,),
    situation="↑ ↓ to a branch, ⏎ goes to its end, esc goes back",
)  # fmt: skip

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
    from inspector.views.lockstep import SecondModelAtStart

    begins = replace(LOCKSTEP, make=lambda host: SecondModelAtStart(host, against))
    return tuple(begins if tool is LOCKSTEP else tool for tool in TOOLS)


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
