"""Eighty-four things that people type into a finder, and what each is to find first.

They were written down before the matching was, from how users of such tools speak: in papers, in forums, on the panels
of other programs. Eight are misspelt by one letter. What is found is named as `Findable.id` has it: an action by its
id, `setting`, `lesson`, `help` and `theme` with a name.
"""

from __future__ import annotations

QUERIES: tuple[tuple[str, str], ...] = (
    # what happens inside the model
    ("ablation", "interventions"), ("knock out", "interventions"), ("knockout head", "interventions"),
    ("steering", "steering"), ("logit lens", "lens"), ("saliency", "attribution"),
    ("integrated gradients", "gradients"), ("gradient x input", "gradients"),
    ("feature attribution", "attribution"), ("direct logit attribution", "attribution"),
    ("why a head looks there", "scores"), ("attention score", "scores"),
    ("attention head", "attention"), ("attention map", "attention"), ("activation patching", "patching"),
    ("causal tracing", "patching"), ("residual stream", "modules"), ("architecture", "modules"),
    ("mixture of experts", "experts"), ("moe", "experts"), ("rope", "positions"), ("embeddings", "help embedding"),
    # what could come, and why this came
    ("next token", "step"), ("generate", "run"), ("pause", "run"), ("step back", "take_back"), ("resample", "reroll"),
    ("why this token", "why"), ("sampler stages", "why"), ("lookahead", "look_ahead"), ("beam search", "beams"),
    ("odds", "draws"), ("top candidates", "candidates"), ("tokenizer", "tokens"), ("token ids", "tokens"),
    ("entropy", "metric"), ("surprisal", "metric"), ("search vocabulary", "find"), ("find text", "find_in_text"),
    # settings
    ("temperature", "setting temp"), ("less random", "setting temp"), ("greedy", "setting temp"),
    ("top p", "setting top_p"), ("top-k", "setting top_k"), ("seed", "setting seed"),
    ("repetition penalty", "setting repetition_penalty"), ("stop string", "setting stop"),
    ("max tokens", "setting max_tokens"), ("JSON", "grammar"), ("regex", "grammar"),
    ("constrained decoding", "grammar"),
    # other models, and what it costs
    ("two models", "lockstep"), ("compare models", "lockstep"), ("lora", "lockstep"), ("quantization", "compare_kv"),
    ("kv cache", "kv"), ("memory", "kv"), ("latency", "profile"), ("profiler", "profile"),
    ("time to first token", "timing"), ("speculative decoding", "speculation"), ("tensor parallel", "ranks"),
    # the session
    ("open model", "open"), ("load model", "open"), ("system prompt", "prompt"), ("chat", "reply"),
    ("undo", "undo"), ("diff", "compare"), ("bookmark", "bookmark"), ("add note", "name"), ("save", "save_as"),
    ("share", "export"), ("clipboard", "copy"), ("history", "sessions"), ("tutorial", "lessons"),
    ("dark mode", "theme"),
    # whose each token is
    ("thinking", "segments"), ("tool calls", "segments"), ("reasoning", "segments"), ("roles", "segments"),
    # how a tokenizer cuts
    ("merges", "merges"), ("byte pair encoding", "merges"), ("bpe", "merges"), ("unigram", "merges"),
    # one letter wrong
    ("temprature", "setting temp"), ("attension", "attention"), ("contribtuions", "attribution"),
    ("quantizaton", "compare_kv"), ("specualtive", "speculation"), ("exprot", "export"), ("grammer", "grammar"),
    ("verfy", "verify"),
)  # fmt: skip
