"""Things that people type into a finder, and what each is to find first.

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
    ("why does it repeat itself", "attention"), ("quiz", "lessons"), ("speaker notes", "present"),
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
    ("two models", "second_model"), ("compare models", "second_model"), ("lora", "second_model"),
    ("quantization", "compare_kv"),
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
    ("quantizaton", "compare_kv"), ("specualtive", "speculation"), ("exprot", "export"), ("grammer", "grammar_expects"),
    ("verfy", "verify"),
)  # fmt: skip

SENTENCES: tuple[tuple[str, str], ...] = (
    # An engineer who serves models.
    ("kv", "kv"),
    ("make it less random", "setting temp"),
    ("temprature", "setting temp"),
    ("top p", "setting top_p"),
    ("stop sequence", "setting stop"),
    ("tok/s", "timing"),
    ("why is it so slow", "timing"),
    ("speculative decoding", "speculation"),
    ("why was this token picked", "why"),
    ("ban a word", "setting logit_bias"),
    ("repeat penalty", "setting repetition_penalty"),
    ("change the seed", "setting seed"),
    ("load another model", "open"),
    ("limit the number of tokens", "setting max_tokens"),
    ("chat template", "prompt"),
    ("json schema", "grammar"),
    ("vocab", "find"),
    ("run to the end", "run"),
    ("tensor parallel", "ranks"),
    ("roofline", "profile"),
    # A researcher in interpretability.
    ("attn", "attention"),
    ("atention", "attention"),
    ("logit lens", "lens"),
    ("turn off a head", "interventions"),
    ("ablate", "interventions"),
    ("skip a layer", "interventions"),
    ("activation patching", "patching"),
    ("steering vector", "steering"),
    ("saliency", "gradients"),
    ("attribuiton", "attribution"),
    ("DLA", "attribution"),
    ("what does each layer predict", "lens"),
    ("why does this head look there", "scores"),
    ("compare branches", "compare"),
    ("compare two models", "second_model"),
    ("surprisal", "metric"),
    ("save my session", "save_as"),
    ("moe", "experts"),
    ("rope", "positions"),
    ("beam search", "beams"),
    # A teacher.
    ("how do i quit", "quit"),
    ("show candidates", "candidates"),
    ("write a new prompt", "prompt"),
    ("how is my text split into tokens", "tokens"),
    ("play automatically", "run"),
    ("undo", "undo"),
    ("probabilites", "candidates"),
    ("glosary", "help terms"),
    ("show the tree", "tree"),
    ("what keys can i use", "help"),
    ("take a screenshot", "screenshot"),
    ("add a note", "name"),
    ("find a word in the text", "find_in_text"),
    ("breakpiont", "breakpoints"),
    ("lesons", "lessons"),
    ("present to my class", "present"),
    ("light mode", "theme"),
    ("write my own word instead", "own_text"),
    ("train a small model", "training"),
    ("share it as a web page", "export"),
    # What others typed and did not find.
    ("int4", "compare_kv"),
    ("4 bit", "compare_kv"),
    ("heads", "attention"),
    ("ban word", "setting logit_bias"),
    ("forbid", "setting logit_bias"),
    ("ram", "kv"),
    ("font", "present"),
    ("device", "facts"),
    ("compare two answers", "compare"),
    ("save for a colleague", "export"),
    ("turn off", "interventions"),
    ("close second model", "close_second"),
    ("leave lesson", "all_lessons"),
    ("stop when unsure", "breakpoints"),
)
"""Words and sentences of people who had not seen the program: an engineer, a researcher and a teacher."""
