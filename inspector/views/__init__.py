"""The views and tools that come with the program: what opens each, in the order of keys, panels, help and finder.

A view's module is imported when it is first opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.protocol import AttributionRead, LensRead, OpenLockstep, Record
from inspector.main.tool import Tool, ToolActions
from inspector.state.batch import Batches
from inspector.state.beams import BeamHistory
from inspector.state.inside import Answers
from inspector.state.measured import Measured
from inspector.state.speculation import Speculation
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

BEAMS = Tool(
    "beams",
    "Beam search",
    actions=(
        Action("beams", "Beam search",
            "Follow several continuations at once from the selected token, step by step or to the end; a paused "
            "search continues.", needs=INSIDE, hint="beams", worth=2, place=110, view="beams",
            opens="inspector.views.beams:BeamsView",
            recorded=lambda own: own.timeline.of(BeamHistory).search is not None,
            synonyms="beams, n best, hypotheses, search for the most probable text"),
    ),
    exports=("inspector.documents.beams:BEAMS_PART",),
)  # fmt: skip

from inspector.tools.breakpoints.tool import BREAKPOINTS  # noqa: E402

# ---- compare ----
from inspector.tools.compare.tool import COMPARE  # noqa: E402

# ---- find ----
from inspector.tools.find.tool import FIND  # noqa: E402

# ---- lockstep ----
from inspector.tools.lockstep.tool import LOCKSTEP, lockstep  # noqa: E402

# ---- lookahead ----
from inspector.tools.lookahead.tool import LOOK_AHEAD  # noqa: E402

# ---- merges ----
from inspector.tools.merges.tool import MERGES  # noqa: E402

# ---- segments ----
from inspector.tools.segments.tool import SEGMENTS  # noqa: E402

# ---- speculation ----

SPECULATION = Tool(
    "speculation",
    "Speculation",
    actions=(
        Action("speculation", "Speculate",
            "Take several tokens with one forward: a draft proposes them, the model accepts or refuses each.",
            needs=INSIDE, recorded=lambda own: own.timeline.of(Speculation).latest is not None, view="speculation",
            opens="inspector.views.speculation:SpeculationView",
            synonyms="speculative decoding, speculative sampling, draft model, assisted generation, prompt lookup"),
    ),
)  # fmt: skip

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

BATCH = Tool(
    "batch",
    "Batch",
    actions=(
        Action("batch", "Batch",
            "Run several prompts at once, a lane for each, one forward for all; step them together.",
            needs=Needs.MODEL | Needs.ENGINE, looks=True, view="batch", opens="inspector.views.batch:BatchView",
            recorded=lambda own: bool(
                (batches := own.timeline.of(Batches)).last or (own.timeline.recorded and batches.continued)),
            synonyms="several prompts, many prompts, batch of prompts, continuous batching, parallel prompts"),
    ),
)  # fmt: skip

# ---- attention ----
from inspector.tools.attention.tool import ATTENTION  # noqa: E402

# ---- costs ----

COSTS = Tool(
    "costs",
    "What a step costs",
    actions=(
        Action("profile", "Take a step apart",
            "Measure the parts of a step with fences between them, its layers, and where it stands under the machine's "
            "roofline.", needs=INSIDE, looks=True, view="step", opens="inspector.views.costs:CostsView",
            recorded=lambda own: bool((found := own.timeline.of(Measured)).profiled or found.roofline),
            synonyms="latency, speed, profiler, performance, slow, time of a step, step time, flops, bandwidth, "
            "cost of a step"),
        Action("compare_kv", "Quantized KV",
            "Compare the KV cache with quantized ones: bytes, and how far the logits change.", needs=INSIDE, looks=True,
            view="KV bits", opens="inspector.views.costs:CostsView",
            recorded=lambda own: own.timeline.of(Measured).compared is not None,
            synonyms="quantization, quantize the cache, kv quantization, kv bits, cache bits"),
    ),
)  # fmt: skip

# ---- draws ----

DRAWS = Tool(
    "draws",
    "Draws",
    actions=(
        Action("draws", "What are the odds",
            "Draw many times after the selected token: how often each token came, beside the sampler's probability.",
            needs=INSIDE, recorded=lambda own: own.timeline.of(Batches).drawn is not None, looks=True, view="odds",
            opens="inspector.views.draws:DrawsView",
            synonyms="odds, sample many times, frequencies, sampling statistics, monte carlo, is the sampler fair"),
    ),
    exports=("inspector.documents.draws:ODDS_PART",),
)  # fmt: skip

# ---- ranks ----

RANKS = Tool(
    "ranks",
    "Ranks",
    actions=(
        Action("ranks", "Ranks",
            "Show the processes that compute the model together: layers, weights, KV and memory of each, and a step's "
            "compute and communication.", needs=INSIDE, looks=True, view="ranks",
            opens="inspector.views.ranks:RanksView",
            recorded=lambda own: bool((found := own.timeline.of(Measured)).ranks or found.loaded),
            synonyms="distributed, tensor parallel, pipeline parallel, several machines, processes, gpus"),
    ),
)  # fmt: skip

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

TRAINING = Tool(
    "training",
    "Training",
    actions=(
        Action("training", "Watch a model learn",
            "Train a small model from random weights and watch what it learns: loss, gradients, candidates, its texts.",
            looks=True, view="train", opens="inspector.views.training:TrainingView",
            synonyms="train, learn, learning, loss, gradient, optimizer, backpropagation, fine-tune, checkpoint, "
            "overfitting, held out"),
    ),
)  # fmt: skip

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
