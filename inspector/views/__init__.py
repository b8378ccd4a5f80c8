"""The views and tools that come with the program: what opens each, in the order of keys, panels, help and finder;
and the views of other packages.

A view's module is imported when it is first opened.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import (
    NEITHER,
    ActivationsPatched,
    AttentionRead,
    AttributionRead,
    ExpertsRead,
    GradientsRead,
    HeadsSwept,
    LensRead,
    ModelModules,
    OpenLockstep,
    PositionTried,
    Record,
    ScoreRead,
    StrengthsSwept,
)
from inspector.display import visible
from inspector.keys import register
from inspector.main.key_table import key_table
from inspector.main.tool import NO_ATTENTION, PanelSpec, Tool, ToolActions, found, live, replayed
from inspector.state.batch import Batches
from inspector.state.beams import BeamHistory
from inspector.state.inside import Answers
from inspector.state.measured import Measured
from inspector.state.second_model import SecondModelSoFar
from inspector.state.speculation import Speculation
from inspector.views.grammar import GrammarActions, GrammarPanel
from inspector.views.lookahead import LookAheadActions
from inspector.views.sampler import TURNED, TURNING, SamplerActions, SamplerPanel
from inspector.views.tool_calls import ToolCallChecks
from inspector.views.tree import TREE_PANEL, TreeActions, TreePanel
from inspector.widgets.actions import Action, ActionTable, Lack, Needs
from inspector.widgets.canvas import DrawnPanel

if TYPE_CHECKING:
    from inspector.config.directions import Steering
    from inspector.lessons.catalogue import Listed
    from inspector.lessons.courses import CoursePlace
    from inspector.served.opening import OpenedRequest

INSIDE = Needs.DISTRIBUTION | Needs.ENGINE


def answered(kind: type[Record]) -> Callable[[ToolActions], bool]:
    """True if there are answers of a class, as a recording may have."""
    return lambda own: bool(own.timeline.of(Answers).asked(kind))


def _ranked(own: ToolActions) -> bool:
    """True if several processes compute the model, or did in a recording."""
    measured = own.timeline.of(Measured)
    return bool(measured.ranks or measured.loaded)


def beside(panel: str, word: str) -> Callable[[ToolActions], str]:
    """A word for the line of keys, while a panel is the answer."""
    return lambda own: word if own.host.arrangement.answer == panel else ""


def _in_replay(help: str, *ids: str) -> tuple[Action, ...]:
    """Actions of a replay that share one sentence."""
    return tuple(Action(id, help=help) for id in ids)


def _focusable_panel() -> DrawnPanel:
    panel = DrawnPanel()
    panel.can_focus = True
    return panel


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
            hint="breakpoints", worth=3, place=62,
            synonyms="stop when unsure, stop condition, conditional breakpoint, stop at, pause at, run until"),
        Action("previous_surprise", "Previous surprise",
            "Look at the previous surprise: a token of 4 bits of surprisal or more, a probability of 6.25 % or less.",
            lambda own: own.surprise(-1), Needs.DISTRIBUTION, looks=True, hint="surprise", worth=5, place=71),
        Action("next_surprise", "Next surprise", "Look at the next surprise.", lambda own: own.surprise(1),
            Needs.DISTRIBUTION, looks=True, hint="surprise", worth=5, place=71),
        Action("previous_fork", "Previous fork point",
            "Look at the previous fork point: less than 10 % between the first two candidates, or branches.",
            lambda own: own.fork(-1), Needs.DISTRIBUTION, looks=True),
        Action("next_fork", "Next fork point", "Look at the next fork point.", lambda own: own.fork(1),
            Needs.DISTRIBUTION, looks=True),
    ),
    dialogs=("inspector.views.breakpoints:BREAKPOINT_KEYS",),
)  # fmt: skip

FIND = Tool(
    "find",
    "Find a token",
    make="inspector.views.find:FindActions",
    actions=(
        Action("find", "Find a token",
            "Search the vocabulary at the selected token, by a part of the text, id or bytes, and take a token that "
            "is found; {find_in_text} finds in the text.", lambda own: own.open(), Needs.DISTRIBUTION,
            hint="token", worth=3, place=60,
            synonyms="search vocabulary, search token, find token id, look up a token", view="find…"),
        Action("find_in_text", "Find in the text",
            "Find a text, an id or bytes among the tokens of this path or of all branches; {find} searches the "
            "vocabulary.", lambda own: own.find_in_text(), Needs.DISTRIBUTION, looks=True,
            synonyms="find text, search text, search in the output"),
    ),
    dialogs=("inspector.views.find:FIND_KEYS", "inspector.views.find:TEXT_KEYS"),
)  # fmt: skip

TYPED_TEXT = Tool(
    "typed_text",
    "Type your own",
    make="inspector.views.typed_text:TypedTextActions",
    actions=(
        Action("own_text", "Type your own",
            "Type a text, special tokens included, in the place of the selected token, on a new branch; the status "
            "line shows its surprisal.", lambda own: own.open(),
            Needs.DISTRIBUTION | Needs.ENGINE, hint=live("type"), worth=6, place=57,
            synonyms="insert text, write text, force text, edit text, prefill the answer, inject text"),
    ),
    dialogs=("inspector.views.typed_text:OWN_TEXT_KEYS",),
)  # fmt: skip

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

COMPARE = Tool(
    "compare",
    "Compare",
    actions=(
        Action("compare", "Compare",
            "Compare the current path with another branch, as texts and token by token: where they diverge, where they "
            "match again, and the logprob of each.", needs=Needs.DISTRIBUTION, hint=replayed("compare"), worth=4,
            place=130, opens="inspector.views.compare:CompareView", view="compare",
            synonyms="diff, compare branches, difference of two branches, side by side"),
    ),
)  # fmt: skip

BEAMS = Tool(
    "beams",
    "Beams",
    actions=(
        Action("beams", "Beams",
            "Follow several continuations at once from the selected token and keep the most probable, step by step or "
            "to the end.", needs=INSIDE, hint="beams", worth=2, place=110, view="beams",
            opens="inspector.views.beams:BeamsView",
            recorded=lambda own: own.timeline.of(BeamHistory).search is not None,
            synonyms="beam search, n best, hypotheses, search for the most probable text"),
    ),
    exports=("inspector.documents.beams:BEAMS_PART",),
)  # fmt: skip

LOOK_AHEAD = Tool(
    "lookahead",
    "Look-ahead",
    LookAheadActions,
    actions=(
        Action("look_ahead", "Look-ahead",
            "Show after each candidate how greedy decoding would continue, and the probability of that continuation; "
            "again to hide it.", LookAheadActions.switch, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.lines.known,
            synonyms="look ahead, lookahead, preview, what comes after, greedy continuation, future tokens",
            view="look-ahead"),
        Action("take_ahead", "Take look-ahead",
            "Take the highlighted candidate and the tokens that look-ahead shows after it.", LookAheadActions.take,
            Needs.DISTRIBUTION | Needs.ENGINE),
    ),
)  # fmt: skip

SEGMENTS = Tool(
    "segments",
    "Segments",
    ToolCallChecks,
    actions=(
        Action("segments", "Segments",
            "Show the segments: system, user, thinking, answer, tool calls and results, with the tokens, time and "
            "surprisal of each; go from one to the next, or fold one in the text.",
            needs=Needs.DISTRIBUTION, looks=True, opens="inspector.views.segments:SegmentsView",
            synonyms="reasoning, thinking, thoughts, tool calls, function calls, roles, chat template, fold, "
            "cost of thinking, tokens by role, harmony, channels"),
    ),
    exports=("inspector.documents.segments:SEGMENTS_PART",),
)  # fmt: skip

MERGES = Tool(
    "merges",
    "Merges",
    actions=(
        Action("merges", "Merges",
            "Show how the selected token's word became its tokens, merge by merge, or compare two tokenizers over the "
            "text.", needs=Needs.DISTRIBUTION, looks=True, view="merges", opens="inspector.views.merges:MergesView",
            synonyms="pieces, merge ladder, byte pair encoding, bpe, unigram, wordpiece, sentencepiece, "
            "subwords, compare tokenizers"),
    ),
    exports=("inspector.documents.merges:MERGES_PART",),
)  # fmt: skip

SPECULATION = Tool(
    "speculation",
    "Drafts",
    actions=(
        Action("speculation", "Drafts",
            "Speculative decoding: a draft guesses several tokens, and one forward pass accepts or refuses each.",
            needs=INSIDE, recorded=lambda own: own.timeline.of(Speculation).latest is not None, view="drafts",
            opens="inspector.views.drafts:DraftsView",
            synonyms="speculation, speculative decoding, speculative sampling, draft model, draft tokens, "
            "assisted generation, prompt lookup"),
    ),
)  # fmt: skip


def _close_second(own: ToolActions) -> None:
    view = own.host.view_at("inspector.views.second_model:SecondModelView")
    own.host.answer(view.close_second())  # type: ignore[attr-defined]  # not imported before it is opened


SECOND_MODEL = Tool(
    "second_model",
    "Second model",
    actions=(
        Action("second_model", "Second model",
            "Compare with a second model: one text, both models' candidates at each token.",
            needs=INSIDE, recorded=lambda own: own.timeline.of(SecondModelSoFar).opened is not None, looks=True,
            opens="inspector.views.second_model:SecondModelView", view="second model",
            synonyms="two models, second model, other model, compare models, quantized model, "
            "close the second model, compare with the 4-bit model, lora, adapter, fine-tuned model, kl divergence, "
            "base against chat model"),
        Action("close_second", "Close second model",
            "Close the second model and free its memory; while it is loading, stop that.", _close_second, Needs.ENGINE,
            looks=True, synonyms="close the second model, unload the second model, remove model b, one model again"),
    ),
    exports=("inspector.documents.second_model:SECOND_MODEL_PART",),
)  # fmt: skip

RACE = Tool(
    "race",
    "Race",
    actions=(
        Action("race", "Race", "Race with a KV cache against without one: the same tokens side by side, both measured.",
            needs=INSIDE, looks=True, view="race", opens="inspector.views.race:RaceView",
            recorded=lambda own: (race := own.timeline.of(Measured).race) is not None and bool(race.steps),
            synonyms="with and without kv cache, no kv cache, speed of the kv cache, why a cache"),
    ),
    exports=("inspector.documents.race:RACE_PART",),
)  # fmt: skip

BATCH = Tool(
    "batch",
    "Batch",
    actions=(
        Action("batch", "Batch",
            "Run several prompts at once, a lane for each, one forward pass for all; step them together.",
            needs=Needs.MODEL | Needs.ENGINE, looks=True, view="batch", opens="inspector.views.batch:BatchView",
            recorded=lambda own: bool(
                (batches := own.timeline.of(Batches)).last or (own.timeline.recorded and batches.continued)),
            synonyms="several prompts, many prompts, batch of prompts, continuous batching, parallel prompts"),
    ),
)  # fmt: skip

DRAWS = Tool(
    "draws",
    "Odds",
    actions=(
        Action("draws", "Odds",
            "Draw many times at the selected token: does each token come up as often as its probability says?",
            needs=INSIDE, recorded=lambda own: own.timeline.of(Batches).drawn is not None, looks=True, view="odds",
            opens="inspector.views.draws:DrawsView",
            synonyms="what are the odds, draw many times, repeated draws, sample many times, frequencies, "
            "sampling statistics, monte carlo, is the sampler fair"),
    ),
    exports=("inspector.documents.draws:ODDS_PART",),
)  # fmt: skip

COSTS = Tool(
    "costs",
    "What a step costs",
    actions=(
        Action("profile", "Take a step apart",
            "A page of time: measure the parts of a step one by one, its layers, and where it stands under the "
            "machine's roofline.", needs=INSIDE, looks=True, opens="inspector.views.costs:CostsView",
            page_of="timing", hint=beside("timing", "step apart"), worth=9, place=65,
            recorded=lambda own: bool((found := own.timeline.of(Measured)).profiled or found.roofline),
            synonyms="latency, speed, profiler, performance, slow, time of a step, step time, flops, bandwidth, "
            "cost of a step"),
        Action("compare_kv", "Other KV bits",
            "A page of the cache: compare it with quantized ones: bytes, and how far the logits change.",
            needs=INSIDE, looks=True, opens="inspector.views.costs:CostsView",
            page_of="kv", hint=beside("kv", "other bits"), worth=9, place=65,
            recorded=lambda own: own.timeline.of(Measured).compared is not None,
            synonyms="quantization, quantize the cache, kv quantization, kv bits, cache bits, int4, int8, "
            "4 bit, 8 bit"),
    ),
)  # fmt: skip

RANKS = Tool(
    "ranks",
    "Ranks",
    actions=(
        Action("ranks", "Ranks",
            "Show the processes that compute the model together: layers, weights, KV and memory of each, and a step's "
            "compute and communication.", needs=INSIDE, looks=True, view="ranks",
            opens="inspector.views.ranks:RanksView", offered=_ranked, recorded=_ranked,
            synonyms="distributed, tensor parallel, pipeline parallel, several machines, processes, gpus"),
    ),
)  # fmt: skip

ATTENTION = Tool(
    "attention",
    "Attention",
    actions=(
        Action("attention", "Attention", "Show where each attention head of each layer looks from this token.",
            needs=INSIDE, recorded=answered(AttentionRead), looks=True, lacks=NO_ATTENTION, view="attention",
            opens="inspector.views.attention:AttentionView",
            synonyms="attn, heads, attention map, attention head, attention heads, attention weights, "
            "attention pattern, which words the model looks at, induction head, previous-token head, "
            "duplicate-token head"),
        Action("scores", "Why a head looks there",
            "A page of attention: why a head looks where it looks, by what wrote the query and the keys.",
            needs=INSIDE, recorded=answered(ScoreRead), looks=True, lacks=NO_ATTENTION,
            opens="inspector.views.scores:ScoresView",
            synonyms="why there, attention score, attention scores, query, key, qk circuit, composition, "
            "score attribution"),
    ),
    exports=("inspector.documents.attention:ATTENTION_PART", "inspector.documents.scores:SCORES_PART"),
)  # fmt: skip

LENS = Tool(
    "lens",
    "Lens",
    actions=(
        Action("lens", "Lens",
            "Show what each layer would predict, read by the model's last norm and output matrix.",
            needs=INSIDE, recorded=answered(LensRead), looks=True, view="lens", opens="inspector.views.lens:Lens",
            synonyms="logit lens, early exit, intermediate layers, layer predictions, unembed"),
    ),
    exports=("inspector.documents.lens:LENS_PART",),
)  # fmt: skip

ATTRIBUTION = Tool(
    "attribution",
    "Contributions",
    actions=(
        Action("attribution", "Contributions",
            "Show what each layer, attention, MLP and head adds to the logit of a token.",
            needs=INSIDE, recorded=answered(AttributionRead), looks=True, view="contributions",
            opens="inspector.views.attribution:Contributions",
            synonyms="parts, dla, direct logit attribution, feature attribution, saliency, importance, "
            "which part matters, logit difference"),
    ),
    exports=("inspector.documents.attribution:CONTRIBUTIONS_PART",),
)  # fmt: skip

GRADIENTS = Tool(
    "gradients",
    "Gradients",
    actions=(
        Action("gradients", "Gradients",
            "Show which tokens of the context a logit depends on, by its gradient, and what the shares leave over.",
            needs=INSIDE, recorded=answered(GradientsRead), looks=True, view="gradients",
            opens="inspector.views.gradients:GradientsView",
            synonyms="integrated gradients, gradient x input, input attribution, which word matters, "
            "which words caused it, derivative, sensitivity, completeness, baseline"),
    ),
    exports=("inspector.documents.gradients:GRADIENTS_PART",),
)  # fmt: skip

INTERVENTIONS = Tool(
    "interventions",
    "Switch off",
    actions=(
        Action("interventions", "Switch off",
            "Switch off heads, attentions, MLPs or layers at this token: what the model then predicts.",
            needs=INSIDE, recorded=answered(HeadsSwept), looks=True, view="switch off",
            opens="inspector.views.interventions:SwitchOff",
            synonyms="ablation, ablate, knock-out, disable a head, zero a head, remove a layer, "
            "intervene, scale a head, turn off, turn off a head, skip a layer"),
        Action("patching", "Activation patching",
            "Put in what the model computed for another prompt or branch: which layers and positions carry the answer.",
            needs=INSIDE, recorded=answered(ActivationsPatched), looks=True, view="patching",
            opens="inspector.views.patching:Patching",
            synonyms="causal tracing, patch activations, counterfactual prompt, corrupted prompt, restore, "
            "activations"),
    ),
    exports=("inspector.documents.interventions:SWITCHED_PART", "inspector.documents.patching:PATCHED_PART"),
)  # fmt: skip

STEERING = Tool(
    "steering",
    "Steering",
    actions=(
        Action("steering", "Steering",
            "Add a direction to the residual stream at this token, and compare what the model then predicts with "
            "random directions.",
            needs=INSIDE, recorded=answered(StrengthsSwept), looks=True, view="steering",
            opens="inspector.views.steering:SteeringView",
            synonyms="steer, activation addition, steering vector, control vector, concept direction, contrast "
            "vector, representation engineering, push the model"),
    ),
    exports=("inspector.documents.steering:STEERED_PART",),
)  # fmt: skip

MODULES = Tool(
    "modules",
    "Map",
    actions=(
        Action("modules", "Map",
            "Show what the model is made of: every module on a token's way, with shapes, parameters and bytes.",
            needs=Needs.MODEL | Needs.ENGINE, recorded=answered(ModelModules), looks=True, view="map",
            opens="inspector.views.modules:ModulesView",
            synonyms="modules, architecture, residual stream, layers, network, diagram, weights, model graph, shapes"),
        Action("positions", "Positions",
            "A page of the map: how this token is given its position, and what a wrong offset or no causal mask would "
            "do.", needs=INSIDE, recorded=answered(PositionTried), looks=True,
            opens="inspector.views.positions:PositionsView",
            synonyms="rope, rotary embedding, position encoding, positional embedding, causal mask"),
        Action("experts", "Experts and states",
            "A page of the map: which experts the token went through, with their weights, and what recurrent layers "
            "keep.",
            needs=INSIDE, recorded=answered(ExpertsRead), looks=True,
            lacks=Lack("chooses_or_keeps", f"{NEITHER} {{Modules}} shows what it is made of"),
            opens="inspector.views.modules:ExpertsView",
            synonyms="moe, mixture of experts, router, routing, mamba, ssm, recurrent state"),
    ),
    exports=(
        "inspector.documents.modules:MODULES_PART", "inspector.documents.positions:POSITIONS_PART",
        "inspector.documents.experts:EXPERTS_PART",
    ),
)  # fmt: skip

SAMPLER = Tool(
    "sampler",
    "Stages",
    SamplerActions,
    actions=(
        Action("why", "Stages",
            "Show the sampler stage by stage: why this token was chosen, and not the highlighted one. Esc goes back.",
            lambda own: own.host.go_to("sampler"), Needs.DISTRIBUTION, looks=True,
            synonyms="why this token, sampler stages, explain this token, reason, how was it chosen, sampling steps, "
            "the draw",
            view="stages"),
        Action("other_model", "Other model",
            "With a second model: show why the other model takes its token, with the same draw.",
            lambda own: own.other_model(), Needs.DISTRIBUTION,
            hint=lambda own: own.other_word(), worth=8, place=91,
            looks=True, synonyms="second model, other model, why the second model"),
        Action("sampling", "Settings",
            "Change temperature, top-p, seed and the other sampling settings, and see at once what they would "
            "have picked.", lambda own: own.sampling(), Needs.ENGINE, recorded=lambda own: bool(own.timeline.rows),
            hint=live("settings"), worth=4, place=130,
            synonyms="sampling, sampling settings, sampler settings, preset, presets, generation parameters, "
            "hyperparameters",
            view="settings…"),
    ),
    panel=PanelSpec(SamplerPanel, "Stages"),
    contexts=(TURNED, TURNING),
    dialogs=("inspector.views.sampling_dialog:SAMPLING_KEYS",),
)  # fmt: skip

SERVED = Tool(
    "served",
    "Recorded reply",
    make="inspector.views.served:ServedActions",
    actions=(
        Action("served", "Recorded reply",
            "Show a server's reply to the open request beside what the program computes: where they begin to differ, "
            "which tokens the server named wrongly, how it changed the text.", lambda own: own.open(),
            synonyms="served tokens, mlx_lm.server, openai, logprobs that were served, what was answered",
            view="recorded reply", looks=True, offered=lambda own: getattr(own, "opened", None)),
        Action("requests", "Requests",
            "Open a recorded request to a server as a session: from a HAR file, or from a file with one request.",
            lambda own: own.requests(), Needs.ENGINE,
            synonyms="recorded requests, open request, request.json, api call, har, mitmdump, replay a request, "
            "chat completions",
            view="requests…"),
    ),
    panel=PanelSpec(_focusable_panel, "Recorded reply"),
    dialogs=("inspector.views.served:REQUESTS_KEYS",),
)  # fmt: skip

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
            "Set a bookmark on the selected token, or on the branch that you went to in the tree; again to remove it.",
            TreeActions.bookmark, Needs.DISTRIBUTION, synonyms="star, remember this token"),
        Action("name", "Name and note",
            "Write a name, a note and a caption on the selected token, or on the branch that you went to in the tree.",
            TreeActions.name, Needs.DISTRIBUTION,
            synonyms="add note, annotate, comment, caption, rename branch"),
        Action("delete", "Delete branch",
            "Delete the branch under the tree's cursor and all below it; {undo} brings them back.",
            TreeActions.delete, Needs.DISTRIBUTION),
    ),
    panel=PanelSpec(TreePanel, "Tree"),
    contexts=(TREE_PANEL,),
    situation="↑ ↓ to a branch, ⏎ goes to its end, esc goes back",
)  # fmt: skip

GRAMMAR = Tool(
    "grammar",
    "Grammar",
    GrammarActions,
    actions=(
        Action("grammar", "Constrain",
            "Make the output match a regular expression, a JSON schema, a grammar or one of several texts, and see "
            "what that allows at the selected token; again to change or remove it.", GrammarActions.open, Needs.ENGINE,
            synonyms="json, json schema, regex, regular expression, structured output, constrained decoding, "
            "constrained generation, lark, allowed tokens, token mask, grammar mask", view="constrain…"),
        Action("grammar_expects", "Grammar",
            "While a grammar is on: which tokens it allows here, how probable the model finds them, and whether the "
            "text may end.", lambda own: own.host.go_to("grammar"), Needs.DISTRIBUTION, looks=True, view="grammar",
            offered=lambda own: own.on),
    ),
    dialogs=("inspector.views.grammar_dialog:GRAMMAR_KEYS",),
    panel=PanelSpec(GrammarPanel, "Grammar"),
)  # fmt: skip

MARKS = Tool(
    "marks",
    "Marks",
    make="inspector.views.marks:MarkActions",
    actions=(
        Action("previous_mark", "Previous mark",
            "Look at the previous mark: a branch point of the path, a bookmark, a note or a caption.",
            lambda own: own.walk(-1), Needs.DISTRIBUTION, looks=True),
        Action("next_mark", "Next mark", "Look at the next mark.", lambda own: own.walk(1), Needs.DISTRIBUTION,
            looks=True),
        Action("marks", "Marks",
            "List all marks: branch points of the path, and bookmarks, notes and captions of every branch; enter goes "
            "there.", lambda own: own.open(), Needs.DISTRIBUTION, looks=True, hint="marks", worth=3, place=63,
            synonyms="bookmarks, notes, annotations"),
    ),
    dialogs=("inspector.views.marks:MARKS_KEYS",),
)  # fmt: skip

COPY = Tool(
    "copy",
    "Copy",
    make="inspector.views.copy:CopyActions",
    actions=(
        Action("copy", "Copy",
            "Copy the token, its id, the completion, the path with probabilities, the branch as JSON and more.",
            lambda own: own.open(), Needs.DISTRIBUTION, looks=True,
            synonyms="clipboard, copy text, copy as json, command line, python script",
            view="copy…"),
        Action("copy_selection", "Copy selection", "Copy what was selected in the text by dragging with the mouse.",
            lambda own: own.selection(), looks=True),
    ),
    dialogs=("inspector.views.copy:COPY_KEYS",),
)  # fmt: skip

EXPORT = Tool(
    "export",
    "Export",
    make="inspector.views.export:ExportActions",
    actions=(
        Action("export", "Export",
            "Export the session: a web page to share, Markdown, CSV, plain text, or a picture of the screen. The "
            "first two include the views that you opened and ticked.",
            lambda own: own.open(), Needs.DISTRIBUTION,
            synonyms="share, html page, report, markdown, csv, svg, publish, "
            "send to a colleague, save for a colleague",
            view="export…"),
    ),
)  # fmt: skip

KEEP = Tool(
    "keep",
    "Keep",
    make="inspector.views.keep:KeepActions",
    actions=(
        Action("keep", "Keep",
            "Show where the session is saved, what an export would have, and the ways to save and share.",
            lambda own: own.host.go_to("keep"), looks=True, view="keep",
            synonyms="where is it saved, is it saved, save and share, menu, layout, settings of the screen"),
    ),
    panel=PanelSpec(_focusable_panel, "Keep"),
)  # fmt: skip

RECORDINGS = Tool(
    "recordings",
    "Recordings",
    tab="7",
    make="inspector.views.recordings:RecordingActions",
    actions=(
        Action("go_live", "Continue live",
            "In a replay: load the model, if it is the recorded one, and continue live from the selected token.",
            lambda own: own.go_live(), Needs.SESSION, hint=replayed("continue live"), worth=10, place=140,
            synonyms="replay, resume a recording, continue live"),
        Action("save_as", "Save",
            "Save the session, with its kept logits if you like, or the shown part of a recording, to a file.",
            lambda own: own.save_as(), Needs.SESSION,
            synonyms="save as, save session, write to a file, trace, recording", view="save…"),
        Action("sessions", "Sessions", "Open a recent session, and continue it.",
            lambda own: own.sessions(),
            synonyms="recent sessions, history, resume, open session, load session, saved sessions, recordings, "
            "continue a session",
            view="sessions…"),
    ),
    contexts=(
        ActionTable("In a replay", (
            Action("step", help="Show the next step or caption; while it plays, pause."),
            Action("run", help="Play it at the recorded pace; at its end, play it from the start; again to pause."),
            *_in_replay("Play faster or slower: a quarter of the recorded pace up to as fast as possible.", "faster",
                   "slower"),
            Action("take_back", help="Go back a step."),
            *_in_replay("Go to another recorded branch.", "choose", "previous_branch", "next_branch"),
            *_in_replay("Show the race, a step taken apart, other KV bits, beams or drafts recorded up to here. There "
                   "`{step}`, `{run}`, `{take_back}`, `{faster}` and `{slower}` move the recording, too.",
                   "race", "profile", "compare_kv", "beams", "speculation"),
            Action("find",
                   help="Search the recorded candidates, or the whole vocabulary if logits were recorded."),
            Action("sampling", help="Try other settings, if logits were recorded."),
            Action("go_live", help="Continue live: load the model, compare it with the recording, and step."),
            Action("open", help="Continue live with a model that has moved to another directory."),
        ), when=attrgetter("timeline.recorded")),
    ),
)  # fmt: skip

LESSONS = Tool(
    "lessons",
    "Lessons",
    make="inspector.views.lessons:LessonActions",
    actions=(
        Action("lessons", "Lessons",
            "List lessons and courses, with what you did, and begin one: predict, do it, and see.",
            looks=True, view="lessons", opens="inspector.views.lessons:LessonsView",
            synonyms="tutorial, course, learn, learning, lesson, how does it work, explain, getting started, "
            "all lessons, list of lessons, exercises, courses, curriculum, progress"),
        Action("present", "Present",
            "Present to a class: one panel, the sentence, large numbers, votes, and your notes.",
            lambda own: own.present(),
            synonyms="font, large type, class, teacher, projector, slides, audience, presentation"),
    ),
    dialogs=("inspector.views.lessons:LESSON_KEYS", "inspector.views.lessons:PRESENTING_KEYS"),
)  # fmt: skip

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
    SECOND_MODEL,
    RACE,
    BATCH,
    DRAWS,
    COSTS,
    RANKS,
    ATTENTION,
    LENS,
    ATTRIBUTION,
    GRADIENTS,
    INTERVENTIONS,
    STEERING,
    MODULES,
    SAMPLER,
    SERVED,
    TREE,
    GRAMMAR,
    MARKS,
    KEEP,
    COPY,
    EXPORT,
    RECORDINGS,
    LESSONS,
    TRAINING,
)

FOLLOWING = tuple(tool for tool in TOOLS if tool not in (BREAKPOINTS, EXPORT, RECORDINGS, LESSONS, TRAINING))
"""The tools of a program that follows the session of another program: none that writes, or opens anything else."""


def with_lesson(
    listed: Listed, present: bool = False, beat: int | None = None, course: CoursePlace | None = None
) -> tuple[Tool, ...]:
    """The tools of a program that begins with a lesson.

    Args:
        listed: The lesson.
        present: Whether to present it.
        beat: The one to begin with, from 0; None to continue, or before a class for the first one.
        course: The course that the lesson is taken in; None for none.
    """
    place = "inspector.views.lessons:LessonActions"
    begun = replace(LESSONS, make=lambda host: found(place)(host, listed, present, beat, course))
    return tuple(begun if tool is LESSONS else tool for tool in TOOLS)


def with_second_model(second: OpenLockstep) -> tuple[Tool, ...]:
    """The tools of a program that begins with a second model.

    Args:
        second: The second model.
    """
    from inspector.views.second_model import SecondModelAtStart

    begins = replace(SECOND_MODEL, make=lambda host: SecondModelAtStart(host, second))
    return tuple(begins if tool is SECOND_MODEL else tool for tool in TOOLS)


def with_steering(tools: tuple[Tool, ...], how: Steering) -> tuple[Tool, ...]:
    """The tools of a program whose first completion is steered.

    Args:
        tools: All of them.
        how: By what.
    """
    from inspector.views.steering import SteeredStart

    steered = replace(STEERING, make=lambda host: SteeredStart(host, how))
    return tuple(steered if tool is STEERING else tool for tool in tools)


def with_request(opened: OpenedRequest) -> tuple[Tool, ...]:
    """The tools of a program that begins with a request of a server.

    Args:
        opened: The request.
    """
    begun = replace(SERVED, make=lambda host: found("inspector.views.served:ServedActions")(host, opened))
    return tuple(begun if tool is SERVED else tool for tool in TOOLS)


# ---- plug-ins: views of other packages ----

PLUGINS = "mlx_inspector.views"
"""The group of their entry points, each of which names a `View` with an `ENTRY`."""


class Plugin(Struct, frozen=True):
    """A view of another package."""

    name: str
    """The name of its entry point; printable."""
    package: str
    """The package with its version; printable."""
    tool: Tool | None
    problem: str = ""
    """Why it can't be used; printable."""


def plugins() -> list[Plugin]:
    """The views that installed packages bring. Their modules are imported: installing a package trusts it."""
    from importlib.metadata import entry_points  # 20 ms

    found: list[Plugin] = []
    for point in entry_points(group=PLUGINS):
        tool, problem = None, ""
        try:
            tool = point.load().ENTRY
            for action in tool.actions:
                register(action.id, action.keys, tool.tab)
            for action in (each for table in tool.tables for each in table.actions):
                register(action.id, action.keys)
            others = [each.tool for each in found if each.tool is not None]
            key_table((*TOOLS, *others, tool))  # refuses a key or an id that is taken
        except Exception as error:  # another package's code may raise anything
            tool, problem = None, visible(f"{type(error).__name__}: {error}")
        package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else ""
        found.append(Plugin(visible(point.name), visible(package), tool, problem))
    return found
