"""The stops of the tour: a panel each, the question that it answers, and the keys for it."""

from __future__ import annotations

from engine.frozen import frozen


@frozen
class Stop:
    """One stop."""

    panel: str
    """Id of the panel that is shown."""
    question: str
    """That the panel answers."""
    text: str
    """`{step}` in it is the key of that action."""


STOPS = (
    Stop("text", "What has been said?",
         "The prompt is grey, with a bar at its left; what the model wrote comes after it. Coloured tokens "
         "surprised the model. ← → walk from token to token, and every panel follows."),
    Stop("candidates", "What could come next?",
         "The likeliest tokens: what the model believes, and what the sampler made of it. The model entropy and the "
         "sampler entropy tell how open each is. A grey row was cut. ▶ is what "
         "{step} takes; ↑ ↓ and ⏎ take another, "
         "as a branch."),
    Stop("steps", "How did it go?",
         "A row for each token that was generated: its probability, how many bits it surprised by, and what it "
         "cost. {metric} changes what the colours mean."),
    Stop("kv", "What does it hold in memory?",
         "Keys and values of every token, kept so that a step computes one token alone. The axis tells what a "
         "token adds. {enlarge} gives a panel the whole screen, and it tells more."),
    Stop("timing", "How long did it take?",
         "The time to the first token, then the time of each, and where in a step it goes: the model, the "
         "sampler, and what you see here."),
    Stop("sampler", "Why this token?",
         "{why} shows the sampler stage by stage, and the draw. "
         "{sampling} changes temperature, top-p and the rest, and shows "
         "at once what that would have picked. {attention} looks into the model: "
         "where its heads look, layer by layer."),
    Stop("tree", "What would have happened otherwise?",
         "{tree} shows every branch that was taken; nothing is lost. "
         "{previous_branch} and {next_branch} go from branch to branch, "
         "{reroll} draws again."),
    Stop("text", "Now you",
         "{Step} takes a step, {run} runs, "
         "{prompt} gives another prompt. {help} explains every key and "
         "what the numbers mean; "
         "`inspector replay` plays a recorded demonstration."),
)  # fmt: skip
