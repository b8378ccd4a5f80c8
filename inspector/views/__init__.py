"""The program's views and tools with the actions that open them, in the order of keys, panels, help and finder; and
plug-ins: views of other packages.

A view's module is imported when the view is first opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from inspector.display import visible
from inspector.keys import register
from inspector.main.key_table import key_table
from inspector.main.tool import NO_ATTENTION, Tool, ToolActions, found, live, replayed
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
    from inspector.main.screen import MainScreen
    from inspector.served.opening import OpenedRequest

INSIDE = Needs.DISTRIBUTION | Needs.ENGINE


def answered(kind: type[protocol.Record]) -> Callable[[ToolActions], bool]:
    """A condition for an action: true if the timeline has answers of a class, as a recording may."""
    return lambda own: bool(own.timeline.of(Answers).asked(kind))


def _ranked(own: ToolActions) -> bool:
    """True if several processes compute the model, or did in a recording."""
    measured = own.timeline.of(Measured)
    return bool(measured.ranks or measured.loaded)


def beside(panel: str, word: str) -> Callable[[ToolActions], str]:
    """A word for the line of keys, shown only while a panel is the answer."""
    return lambda own: word if own.host.arrangement.answer == panel else ""


def _focusable_panel() -> DrawnPanel:
    panel = DrawnPanel()
    panel.can_focus = True
    return panel


def _close_second(own: ToolActions) -> None:
    view = own.host.view_at("inspector.views.second_model:SecondModelView")
    own.host.answer(view.close_second())  # type: ignore[attr-defined]  # not imported before it is opened


def _view(
    id: str, label: str, help: str, opens: str, view: str | None = None, needs: Needs = INSIDE,
    looks: bool = True, **more: Any,
) -> Action:  # fmt: skip
    """An action that opens a view. Its word in the line under the tabs is its label unless `view` is given."""
    word = label.lower() if view is None else view
    return Action(id, label, help, needs=needs, looks=looks, view=word, opens=opens, **more)


def _tool(id: str, title: str, *actions: Action, **more: Any) -> Tool:
    return Tool(id, title, actions=actions, **more)


TOOLS: tuple[Tool, ...] = (
    _tool("breakpoints", "Breakpoints",
        Action("skip", "Skip sure tokens",
            "Run while the model is sure: until the next token has less than 50 %, less than all others together. "
            "Breakpoints and stops apply, too; again to pause.",
            lambda own: own.host.answer(own.controller.transport.run(over_sure=True)),
            Needs.DISTRIBUTION | Needs.ENGINE,
            synonyms="next uncertain token, uncertainty, confidence, interesting tokens, fast forward"),
        Action("breakpoints", "Breakpoints",
            "Set where runs stop: at a wide choice, an improbable token, a fork point, a text and more.",
            lambda own: own.open(), Needs.ENGINE, hint="breakpoints", worth=3, place=62,
            synonyms="stop when unsure, stop condition, conditional breakpoint, stop at, pause at, run until"),
        Action("previous_surprise", "Previous surprise",
            "Look at the previous surprise: a token of 4 bits of surprisal or more, a probability of 6.25 % or less.",
            lambda own: own.surprise(-1), Needs.DISTRIBUTION, looks=True, hint="surprise", worth=5, place=71),
        Action("next_surprise", "Next surprise",
            "Look at the next surprise.", lambda own: own.surprise(1), Needs.DISTRIBUTION, looks=True, hint="surprise",
            worth=5, place=71),
        Action("previous_fork", "Previous fork point",
            "Look at the previous fork point: less than 10 % between the first two candidates, or branches.",
            lambda own: own.fork(-1), Needs.DISTRIBUTION, looks=True),
        Action("next_fork", "Next fork point",
            "Look at the next fork point.", lambda own: own.fork(1), Needs.DISTRIBUTION, looks=True),
        make="inspector.views.breakpoints:BreakpointActions", dialogs=("inspector.views.breakpoints:BREAKPOINT_KEYS",),
    ),
    _tool("find", "Find a token",
        Action("find", "Find a token",
            "Search the vocabulary at the selected token, by a part of the text, id or bytes, and take a token that "
            "is found; {find_in_text} finds in the text.", lambda own: own.open(), Needs.DISTRIBUTION, hint="token",
            worth=3, place=60, view="find…",
            synonyms="search vocabulary, search token, find token id, look up a token"),
        Action("find_in_text", "Find in the text",
            "Find a text, an id or bytes among the tokens of this path or of all branches; {find} searches the "
            "vocabulary.", lambda own: own.find_in_text(), Needs.DISTRIBUTION, looks=True,
            synonyms="find text, search text, search in the output"),
        make="inspector.views.find:FindActions",
        dialogs=("inspector.views.find:FIND_KEYS", "inspector.views.find:TEXT_KEYS"),
    ),
    _tool("typed_text", "Type your own",
        Action("own_text", "Type your own",
            "Type a text, special tokens included, instead of the selected token, on a new branch; the status "
            "line shows its surprisal.", lambda own: own.open(), Needs.DISTRIBUTION | Needs.ENGINE, hint=live("type"),
            worth=6, place=57,
            synonyms="insert text, write text, force text, edit text, prefill the answer, inject text"),
        make="inspector.views.typed_text:TypedTextActions", dialogs=("inspector.views.typed_text:OWN_TEXT_KEYS",),
    ),
    _tool("turns", "Turns",
        Action("reply", "Reply",
            "Continue the conversation: add the user's next message after the model's answer, on the same path. "
            "Nothing runs again.", lambda own: own.open(), Needs.DISTRIBUTION | Needs.ENGINE, hint=live("reply"),
            worth=1, place=150, synonyms="chat, answer, conversation, next message, turn, multi-turn"),
        make="inspector.views.turns:TurnActions", dialogs=("inspector.views.turns:TURN_KEYS",),
    ),
    _tool("compare", "Compare",
        _view("compare", "Compare",
            "Compare the current path with another branch, as texts and token by token: where they diverge, where "
            "they match again, and the logprob of each.", "inspector.views.compare:CompareView",
            needs=Needs.DISTRIBUTION, looks=False, hint=replayed("compare"), worth=4, place=130,
            synonyms="diff, compare branches, difference of two branches, side by side"),
    ),
    _tool("beams", "Beams",
        _view("beams", "Beams",
            "Follow several continuations at once from the selected token and keep the most probable, step by step or "
            "to the end.", "inspector.views.beams:BeamsView", looks=False, hint="beams", worth=2, place=110,
            recorded=lambda own: own.timeline.of(BeamHistory).search is not None,
            synonyms="beam search, n best, hypotheses, search for the most probable text"),
        exports=("inspector.documents.beams:BEAMS_PART",),
    ),
    _tool("lookahead", "Look-ahead",
        Action("look_ahead", "Look-ahead",
            "Show after each candidate how greedy decoding would continue, and the probability of that continuation; "
            "again to hide it.", LookAheadActions.switch, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.lines.known, view="look-ahead",
            synonyms="look ahead, lookahead, preview, what comes after, greedy continuation, future tokens"),
        Action("take_ahead", "Take look-ahead",
            "Take the highlighted candidate and the tokens that look-ahead shows after it.", LookAheadActions.take,
            Needs.DISTRIBUTION | Needs.ENGINE),
        make=LookAheadActions,
    ),
    _tool("segments", "Segments",
        _view("segments", "Segments",
            "Show the segments: system, user, thinking, answer, tool calls and results, with the tokens, time and "
            "surprisal of each; go from one to the next, or fold one in the text.",
            "inspector.views.segments:SegmentsView", view="", needs=Needs.DISTRIBUTION,
            synonyms="reasoning, thinking, thoughts, tool calls, function calls, roles, chat template, fold, cost of "
            "thinking, tokens by role, harmony, channels"),
        make=ToolCallChecks, exports=("inspector.documents.segments:SEGMENTS_PART",),
    ),
    _tool("merges", "Merges",
        _view("merges", "Merges",
            "Show how the selected token's word became its tokens, merge by merge, or compare two tokenizers over the "
            "text.", "inspector.views.merges:MergesView", needs=Needs.DISTRIBUTION,
            synonyms="pieces, merge ladder, byte pair encoding, bpe, unigram, wordpiece, sentencepiece, subwords, "
            "compare tokenizers"),
        exports=("inspector.documents.merges:MERGES_PART",),
    ),
    _tool("speculation", "Drafts",
        _view("speculation", "Drafts",
            "Speculative decoding: a draft guesses several tokens, and one forward pass accepts or refuses each.",
            "inspector.views.drafts:DraftsView", looks=False,
            recorded=lambda own: own.timeline.of(Speculation).latest is not None,
            synonyms="speculation, speculative decoding, speculative sampling, draft model, draft tokens, assisted "
            "generation, prompt lookup"),
    ),
    _tool("second_model", "Second model",
        _view("second_model", "Second model",
            "Compare with a second model: one text, both models' candidates at each token.",
            "inspector.views.second_model:SecondModelView",
            recorded=lambda own: own.timeline.of(SecondModelSoFar).opened is not None,
            synonyms="two models, second model, other model, compare models, quantized model, close the second model, "
            "compare with the 4-bit model, lora, adapter, fine-tuned model, kl divergence, base against chat model"),
        Action("close_second", "Close second model",
            "Close the second model and free its memory; while it is loading, stop that.", _close_second, Needs.ENGINE,
            looks=True, synonyms="close the second model, unload the second model, remove model b, one model again"),
        exports=("inspector.documents.second_model:SECOND_MODEL_PART",),
    ),
    _tool("race", "Race",
        _view("race", "Race",
            "Race with a KV cache against without one: the same tokens side by side, both measured.",
            "inspector.views.race:RaceView",
            recorded=lambda own: (race := own.timeline.of(Measured).race) is not None and bool(race.steps),
            synonyms="with and without kv cache, no kv cache, speed of the kv cache, why a cache"),
        exports=("inspector.documents.race:RACE_PART",),
    ),
    _tool("batch", "Batch",
        _view("batch", "Batch",
            "Run several prompts at once, a lane for each, one forward pass for all; step them together.",
            "inspector.views.batch:BatchView", needs=Needs.MODEL | Needs.ENGINE,
            recorded=lambda own: bool(
                (batches := own.timeline.of(Batches)).last or (own.timeline.recorded and batches.continued)),
            synonyms="several prompts, many prompts, batch of prompts, continuous batching, parallel prompts"),
    ),
    _tool("draws", "Odds",
        _view("draws", "Odds",
            "Draw many times at the selected token: does each token come up as often as its probability says?",
            "inspector.views.draws:DrawsView", recorded=lambda own: own.timeline.of(Batches).drawn is not None,
            synonyms="what are the odds, draw many times, repeated draws, sample many times, frequencies, sampling "
            "statistics, monte carlo, is the sampler fair"),
        exports=("inspector.documents.draws:ODDS_PART",),
    ),
    _tool("costs", "What a step costs",
        _view("profile", "Take a step apart",
            "A page of time: measure the parts of a step one by one, its layers, and where it stands under the "
            "machine's roofline.", "inspector.views.costs:CostsView", view="", page_of="timing",
            hint=beside("timing", "step apart"), worth=9, place=65,
            recorded=lambda own: bool((found := own.timeline.of(Measured)).profiled or found.roofline),
            synonyms="latency, speed, profiler, performance, slow, time of a step, step time, flops, bandwidth, cost "
            "of a step"),
        _view("compare_kv", "Other KV bits",
            "A page of the cache: compare it with quantized ones: bytes, and how far the logits change.",
            "inspector.views.costs:CostsView", view="", page_of="kv", hint=beside("kv", "other bits"), worth=9,
            place=65, recorded=lambda own: own.timeline.of(Measured).compared is not None,
            synonyms="quantization, quantize the cache, kv quantization, kv bits, cache bits, int4, int8, 4 bit, 8 bit"
            ""),
    ),
    _tool("ranks", "Ranks",
        _view("ranks", "Ranks",
            "Show the processes that compute the model together: layers, weights, KV and memory of each, and a step's "
            "compute and communication.", "inspector.views.ranks:RanksView", offered=_ranked, recorded=_ranked,
            synonyms="distributed, tensor parallel, pipeline parallel, several machines, processes, gpus"),
    ),
    _tool("attention", "Attention",
        _view("attention", "Attention",
            "Show where each attention head of each layer looks from this token.",
            "inspector.views.attention:AttentionView", recorded=answered(protocol.AttentionRead), lacks=NO_ATTENTION,
            synonyms="attn, heads, attention map, attention head, attention heads, attention weights, attention "
            "pattern, which words the model looks at, induction head, previous-token head, duplicate-token head, "
            "loops, why it repeats itself"),
        _view("scores", "Why a head looks there",
            "A page of attention: why a head looks where it looks, by what wrote the query and the keys.",
            "inspector.views.scores:ScoresView", view="", recorded=answered(protocol.ScoreRead), lacks=NO_ATTENTION,
            synonyms="why there, attention score, attention scores, query, key, qk circuit, composition, score "
            "attribution"),
        exports=("inspector.documents.attention:ATTENTION_PART", "inspector.documents.scores:SCORES_PART"),
    ),
    _tool("lens", "Lens",
        _view("lens", "Lens",
            "Show what each layer would predict, read by the model's last norm and output matrix.",
            "inspector.views.lens:Lens", recorded=answered(protocol.LensRead),
            synonyms="logit lens, early exit, intermediate layers, layer predictions, unembed"),
        exports=("inspector.documents.lens:LENS_PART",),
    ),
    _tool("attribution", "Contributions",
        _view("attribution", "Contributions",
            "Show what each layer, attention, MLP and head adds to the logit of a token.",
            "inspector.views.attribution:Contributions", recorded=answered(protocol.AttributionRead),
            synonyms="parts, dla, direct logit attribution, feature attribution, saliency, importance, which part "
            "matters, logit difference"),
        exports=("inspector.documents.attribution:CONTRIBUTIONS_PART",),
    ),
    _tool("gradients", "Gradients",
        _view("gradients", "Gradients",
            "Show which tokens of the context a logit depends on, by its gradient, and what the shares leave over.",
            "inspector.views.gradients:GradientsView", recorded=answered(protocol.GradientsRead),
            synonyms="integrated gradients, gradient x input, input attribution, which word matters, which words "
            "caused it, derivative, sensitivity, completeness, baseline"),
        exports=("inspector.documents.gradients:GRADIENTS_PART",),
    ),
    _tool("interventions", "Switch off",
        _view("interventions", "Switch off",
            "Switch off heads, attentions, MLPs or layers at this token: what the model then predicts.",
            "inspector.views.interventions:SwitchOff", recorded=answered(protocol.HeadsSwept),
            synonyms="ablation, ablate, knock-out, disable a head, zero a head, remove a layer, intervene, scale a "
            "head, turn off, turn off a head, skip a layer"),
        _view("patching", "Activation patching",
            "Put in what the model computed for another prompt or branch: which layers and positions carry the answer.",
            "inspector.views.patching:Patching", view="patching", recorded=answered(protocol.ActivationsPatched),
            synonyms="causal tracing, patch activations, counterfactual prompt, corrupted prompt, restore, "
            "activations"),
        exports=("inspector.documents.interventions:SWITCHED_PART", "inspector.documents.patching:PATCHED_PART"),
    ),
    _tool("steering", "Steering",
        _view("steering", "Steering",
            "Add a direction to the residual stream at this token, and compare what the model then predicts with "
            "random directions.", "inspector.views.steering:SteeringView", recorded=answered(protocol.StrengthsSwept),
            synonyms="steer, activation addition, steering vector, control vector, concept direction, contrast vector, "
            "representation engineering, push the model"),
        exports=("inspector.documents.steering:STEERED_PART",),
    ),
    _tool("modules", "Map",
        _view("modules", "Map",
            "Show what the model is made of: every module on a token's way, with shapes, parameters and bytes.",
            "inspector.views.modules:ModulesView", needs=Needs.MODEL | Needs.ENGINE,
            recorded=answered(protocol.ModelModules),
            synonyms="modules, architecture, residual stream, layers, network, diagram, weights, model graph, shapes"),
        _view("positions", "Positions",
            "A page of the map: how this token is given its position, and what a wrong offset or no causal mask would "
            "do.", "inspector.views.positions:PositionsView", view="", recorded=answered(protocol.PositionTried),
            synonyms="rope, rotary embedding, position encoding, positional embedding, causal mask"),
        _view("experts", "Experts and states",
            "A page of the map: which experts the token went through, with their weights, and what recurrent layers "
            "keep.", "inspector.views.modules:ExpertsView", view="", recorded=answered(protocol.ExpertsRead),
            lacks=Lack("chooses_or_keeps", f"{protocol.NEITHER} {{Modules}} shows what it is made of"),
            synonyms="moe, mixture of experts, router, routing, mamba, ssm, recurrent state"),
        exports=("inspector.documents.modules:MODULES_PART", "inspector.documents.positions:POSITIONS_PART",
                 "inspector.documents.experts:EXPERTS_PART"),
    ),
    _tool("sampler", "Stages",
        Action("why", "Stages",
            "Show the sampler stage by stage: why this token was chosen, and not the highlighted one. Esc goes back.",
            lambda own: own.host.go_to("sampler"), Needs.DISTRIBUTION, looks=True, view="stages",
            synonyms="why this token, sampler stages, explain this token, reason, how was it chosen, sampling steps, "
            "the draw"),
        Action("other_model", "Other model",
            "With a second model: show why the other model takes its token, with the same draw.",
            lambda own: own.other_model(), Needs.DISTRIBUTION, hint=lambda own: own.other_word(), worth=8, place=91,
            looks=True, synonyms="second model, other model, why the second model"),
        Action("sampling", "Settings",
            "Change temperature, top-p, seed and the other sampling settings, and see at once what they would have "
            "picked.", lambda own: own.sampling(), Needs.ENGINE, recorded=lambda own: bool(own.timeline.rows),
            hint=live("settings"), worth=4, place=130, view="settings…",
            synonyms="sampling, sampling settings, sampler settings, preset, presets, generation parameters, "
            "hyperparameters"),
        make=SamplerActions, panel=SamplerPanel, contexts=(TURNED, TURNING),
        dialogs=("inspector.views.sampling_dialog:SAMPLING_KEYS",),
    ),
    _tool("served", "Recorded reply",
        Action("served", "Recorded reply",
            "Show a server's reply to the open request beside what the program computes: where they begin to differ, "
            "which tokens the server named wrongly, how it changed the text.", lambda own: own.open(),
            view="recorded reply", looks=True, offered=lambda own: getattr(own, "opened", None),
            synonyms="served tokens, mlx_lm.server, openai, logprobs that were served, what was answered"),
        Action("requests", "Requests",
            "Open a recorded request to a server as a session: from a HAR file, or from a file with one request.",
            lambda own: own.requests(), Needs.ENGINE, view="requests…",
            synonyms="recorded requests, open request, request.json, api call, har, mitmdump, replay a request, chat "
            "completions"),
        make="inspector.views.served:ServedActions",
        panel=_focusable_panel,
        dialogs=("inspector.views.served:REQUESTS_KEYS",),
    ),
    _tool("tree", "Tree",
        Action("tree", "Tree",
            "Show the tree of branches. Esc goes back.", lambda own: own.host.go_to("tree"), Needs.DISTRIBUTION,
            looks=True, view="tree", synonyms="branches, alternatives, versions, all branches, perplexity, token tree"),
        Action("filter", "Filter tree",
            "Show only branches of the tree that contain a text or a bookmark; esc shows all again.",
            TreeActions.filter, Needs.DISTRIBUTION, looks=True),
        Action("bookmark", "Bookmark",
            "Set a bookmark on the selected token, or on the branch that you went to in the tree; again to remove it.",
            TreeActions.bookmark, Needs.DISTRIBUTION, synonyms="star, remember this token"),
        Action("name", "Name and note",
            "Write a name, a note and a caption on the selected token, or on the branch that you went to in the tree.",
            TreeActions.name, Needs.DISTRIBUTION, synonyms="add note, annotate, comment, caption, rename branch"),
        Action("delete", "Delete branch",
            "Delete the branch under the tree's cursor and all below it; {undo} brings them back.", TreeActions.delete,
            Needs.DISTRIBUTION),
        make=TreeActions, panel=TreePanel, contexts=(TREE_PANEL,),
        situation="↑ ↓ to a branch, ⏎ goes to its end, esc goes back",
    ),
    _tool("grammar", "Grammar",
        Action("grammar", "Constrain",
            "Make the output match a regular expression, a JSON schema, a grammar or one of several texts, and see "
            "what that allows at the selected token; again to change or remove it.", GrammarActions.open, Needs.ENGINE,
            view="constrain…",
            synonyms="json, json schema, regex, regular expression, structured output, constrained decoding, "
            "constrained generation, lark, allowed tokens, token mask, grammar mask"),
        Action("grammar_expects", "Grammar",
            "While a grammar is on: which tokens it allows here, how probable the model finds them, and whether the "
            "text may end.", lambda own: own.host.go_to("grammar"), Needs.DISTRIBUTION, looks=True, view="grammar",
            offered=lambda own: own.on),
        make=GrammarActions, dialogs=("inspector.views.grammar_dialog:GRAMMAR_KEYS",),
        panel=GrammarPanel,
    ),
    _tool("marks", "Marks",
        Action("previous_mark", "Previous mark",
            "Look at the previous mark: a branch point of the path, a bookmark, a note or a caption.",
            lambda own: own.walk(-1), Needs.DISTRIBUTION, looks=True),
        Action("next_mark", "Next mark",
            "Look at the next mark.", lambda own: own.walk(1), Needs.DISTRIBUTION, looks=True),
        Action("marks", "Marks",
            "List all marks: branch points of the path, and bookmarks, notes and captions of every branch; enter goes "
            "there.", lambda own: own.open(), Needs.DISTRIBUTION, looks=True, hint="marks", worth=3, place=63,
            synonyms="bookmarks, notes, annotations"),
        make="inspector.views.marks:MarkActions", dialogs=("inspector.views.marks:MARKS_KEYS",),
    ),
    _tool("keep", "Keep",
        Action("keep", "Keep",
            "Show where the session is saved, what an export would have, and the ways to save and share.",
            lambda own: own.host.go_to("keep"), looks=True, view="keep",
            synonyms="where is it saved, is it saved, save and share, menu, layout, settings of the screen"),
        make="inspector.views.keep:KeepActions", panel=_focusable_panel,
    ),
    _tool("copy", "Copy",
        Action("copy", "Copy",
            "Copy the token, its id, the completion, the path with probabilities, the branch as JSON and more.",
            lambda own: own.open(), Needs.DISTRIBUTION, looks=True, view="copy…",
            synonyms="clipboard, copy text, copy as json, command line, python script"),
        Action("copy_selection", "Copy selection",
            "Copy what was selected in the text by dragging with the mouse.", lambda own: own.selection(), looks=True),
        make="inspector.views.copy:CopyActions", dialogs=("inspector.views.copy:COPY_KEYS",),
    ),
    _tool("export", "Export",
        Action("export", "Export",
            "Export the session: a web page to share, Markdown, CSV, plain text, or a picture of the screen. The "
            "first two include the views that you opened and ticked.", lambda own: own.open(), Needs.DISTRIBUTION,
            view="export…",
            synonyms="share, html page, report, markdown, csv, svg, publish, send to a colleague, "
            "save for a colleague"),
        make="inspector.views.export:ExportActions",
    ),
    _tool("recordings", "Recordings",
        Action("go_live", "Continue live",
            "In a replay: load the model, if it is the recorded one, and continue live from the selected token.",
            lambda own: own.go_live(), Needs.SESSION, hint=replayed("continue live"), worth=10, place=140,
            synonyms="replay, resume a recording, continue live"),
        Action("save_as", "Save",
            "Save the session, with its kept logits if you like, or the shown part of a recording, to a file.",
            lambda own: own.save_as(), Needs.SESSION, view="save…",
            synonyms="save as, save session, write to a file, trace, recording"),
        Action("sessions", "Sessions",
            "Open a recent session, and continue it.", lambda own: own.sessions(), view="sessions…",
            synonyms="recent sessions, history, resume, open session, load session, saved sessions, recordings, "
            "continue a session"),
        make="inspector.views.recordings:RecordingActions", tab="7",
        contexts=(ActionTable("In a replay", (
            Action("step", help="Show the next step or caption; while it plays, pause."),
            Action("run", help="Play it at the recorded pace; at its end, play it from the start; again to pause."),
            *(Action(id, help="Play faster or slower: a quarter of the recorded pace up to as fast as possible.")
              for id in ("faster", "slower")),
            Action("take_back", help="Go back a step."),
            *(Action(id, help="Go to another recorded branch.")
              for id in ("choose", "previous_branch", "next_branch")),
            *(Action(id, help="Show the race, a step taken apart, other KV bits, beams or drafts recorded up to here. "
                     "There `{step}`, `{run}`, `{take_back}`, `{faster}` and `{slower}` move the recording, too.")
              for id in ("race", "profile", "compare_kv", "beams", "speculation")),
            Action("find", help="Search the recorded candidates, or the whole vocabulary if logits were recorded."),
            Action("sampling", help="Try other settings, if logits were recorded."),
            Action("go_live", help="Continue live: load the model, compare it with the recording, and step."),
            Action("open", help="Continue live with a model that has moved to another directory."),
        ), when=attrgetter("timeline.recorded")),),
    ),
    _tool("lessons", "Lessons",
        _view("lessons", "Lessons",
            "List lessons and courses, with what you did, and begin one: predict, do it, and see.",
            "inspector.views.lessons:LessonsView", needs=Needs.NOTHING,
            synonyms="tutorial, course, learn, learning, lesson, how does it work, explain, getting started, all "
            "lessons, list of lessons, exercises, courses, curriculum, progress, quiz, homework"),
        Action("present", "Present",
            "Present to a class: one panel, the sentence, large numbers, votes, and your notes.",
            lambda own: own.present(), synonyms="font, large type, class, pupils, teacher, projector, slides, "
            "audience, presentation, speaker's notes"),
        make="inspector.views.lessons:LessonActions",
        dialogs=("inspector.views.lessons:LESSON_KEYS", "inspector.views.lessons:PRESENTING_KEYS"),
    ),
    _tool("training", "Training",
        _view("training", "Watch a model learn",
            "Train a small model from random weights and watch what it learns: loss, gradients, candidates, its texts.",
            "inspector.views.training:TrainingView", view="train", needs=Needs.NOTHING,
            synonyms="train, learn, learning, loss, gradient, optimizer, backpropagation, fine-tune, checkpoint, "
            "overfitting, held out"),
    ),
)  # fmt: skip

FOLLOWING = tuple(
    tool for tool in TOOLS if tool.id not in ("breakpoints", "export", "recordings", "lessons", "training")
)
"""The tools of a program that follows another program's session: without those that write or open something else."""


def _begun(
    id: str, make: Callable[[MainScreen], ToolActions], tools: Sequence[Tool] = TOOLS
) -> tuple[Tool, ...]:
    """The tools, one of them made by another function."""
    return tuple(replace(tool, make=make) if tool.id == id else tool for tool in tools)


def with_lesson(
    listed: Listed, present: bool = False, beat: int | None = None, course: CoursePlace | None = None
) -> tuple[Tool, ...]:
    """The tools of a program that begins with a lesson.

    Args:
        listed: The lesson.
        present: Whether to present it.
        beat: Index of the card to begin with; None to continue, or to present from the first one.
        course: The lesson's place in a course; None if it is taken by itself.
    """
    place = "inspector.views.lessons:LessonActions"
    return _begun("lessons", lambda host: found(place)(host, listed, present, beat, course))


def with_second_model(second: protocol.OpenLockstep) -> tuple[Tool, ...]:
    """The tools of a program that begins with a second model."""
    place = "inspector.views.second_model:SecondModelAtStart"
    return _begun("second_model", lambda host: found(place)(host, second))


def with_steering(tools: tuple[Tool, ...], how: Steering) -> tuple[Tool, ...]:
    """The tools of a program whose first completion is steered."""
    return _begun("steering", lambda host: found("inspector.views.steering:SteeredStart")(host, how), tools)


def with_request(opened: OpenedRequest) -> tuple[Tool, ...]:
    """The tools of a program that begins with a recorded request to a server."""
    return _begun("served", lambda host: found("inspector.views.served:ServedActions")(host, opened))


# ---- plug-ins: views of other packages ----

PLUGINS = "mlx_inspector.views"
"""The entry point group of plug-ins; each entry point names a `View` with an `ENTRY`."""


class Plugin(Struct, frozen=True):
    """A view of another package."""

    name: str
    """The name of its entry point; printable."""
    package: str
    """The package with its version; printable."""
    tool: Tool | None
    problem: str = ""
    """Why it can't be used; printable, empty if it can."""


def plugins() -> list[Plugin]:
    """The views of installed packages. Their modules are imported: installing a package means trusting it."""
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
            key_table((*TOOLS, *others, tool))  # raises if a key or an id is taken
        except Exception as error:  # another package's code may raise anything
            tool, problem = None, visible(f"{type(error).__name__}: {error}")
        package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else ""
        found.append(Plugin(visible(point.name), visible(package), tool, problem))
    return found
