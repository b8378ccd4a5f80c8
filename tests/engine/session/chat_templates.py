"""Chat templates as four families have them, and a tiny model with the special tokens of all of them."""

from __future__ import annotations

import json
from pathlib import Path

from engine.model import synthetic
from engine.model.load import Loaded, load
from engine.settings import LoadSettings

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{% for m in messages %}{% set content = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n'"
    " + m['content'] | trim + '<|eot_id|>' %}{% if loop.first %}{% set content = '<|begin_of_text|>' + content %}"
    "{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
GEMMA = (
    "{{ '<bos>' }}{% for m in messages %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
REASONING = (
    "{% for m in messages %}{% set content = m['content'] %}"
    "{% if m['role'] == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)
"""As of Qwen 3 and its like: the thinking of earlier answers is dropped."""
TEMPLATES = {
    "ChatML": (CHATML, "<|im_end|>"),
    "Llama 3": (LLAMA3, "<|eot_id|>"),
    "Gemma": (GEMMA, "<end_of_turn>"),
    "reasoning": (REASONING, "<|im_end|>"),
}
"""The template, and the token that ends an answer."""
SPECIAL = (
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<bos>", "<start_of_turn>",
    "<end_of_turn>", "<think>", "</think>",
)  # fmt: skip


def chatting(directory: Path, name: str) -> Loaded:
    """A tiny random llama that has a family's template, written into a directory."""
    template, end = TEMPLATES[name]
    config = dict(synthetic.LLAMA_100M) | {
        "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 4096 + 16, "max_position_embeddings": 2048,
    }  # fmt: skip
    synthetic.write(directory, config)
    cut = json.loads((directory / "tokenizer.json").read_text())
    for place, content in enumerate(SPECIAL):
        cut["added_tokens"].append(cut["added_tokens"][0] | {"id": 4096 + place, "content": content})
    (directory / "tokenizer.json").write_text(json.dumps(cut))
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    settings |= {"chat_template": template, "eos_token": end}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return load(LoadSettings(model=str(directory)))
