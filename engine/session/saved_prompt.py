"""Goes on from a KV cache that mlx_lm.cache_prompt saved, with the ids that mlx_lm.generate would go on with.

The file has no token ids. The text that it was made from must be given, too; it runs through the model in caches of
its own, and where the file's numbers are those, the file's arrays take their place. That costs a prefill: it is the
only way to know that the tokens on the screen are the ones whose keys and values are gone on from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from engine.cache.kinds import kind_of
from engine.cache.moves import MoveCost
from engine.chunks import of_prompt
from engine.errors import PromptError
from engine.frozen import frozen
from engine.model.forward import FIXED_CHUNK, Stopped
from engine.protocol import NO_OPTIONS, Message, Prefill, PromptOpened
from engine.session.prefill import PrefillRun, PromptPath, PromptRecord
from engine.session.prompt_file import read_saved
from engine.session.session import Session
from engine.tree import ROOT

QUERY = "<query>"
"""Put in the prompt's place by mlx_lm.generate, to find what the template writes from there on."""
FORGOTTEN = " It can't tell tokens apart that have left a window or faded from a recurrent state."


@frozen
class PromptParts:
    """A prompt in two parts, each as text and as ids."""

    cached: str
    cached_ids: list[int]
    text: str
    ids: list[int]
    chat: bool
    """Whether the second went through the chat template."""


def prompt(session: Session, command: Prefill, stopped: Stopped) -> Iterator[PromptRecord]:
    """Prefill what follows a saved cache.

    Yields:
        What the file holds as a prompt of its own, which needs no forward, then as `Session.prefill`.

    Raises:
        PromptError: The file is not the cache of the text, or as `Session.prefill`; nothing changed then.
        Cancelled: `stopped` returned True.
    """
    if not session.cached:
        raise PromptError("Without a KV cache no saved one can be gone on from.", "Leave out --no-kv-cache.")
    parts = _cut(session, command)
    session.check_prompt(parts.cached_ids, 0)
    session.check_prompt(parts.ids, len(parts.cached_ids))
    session.check_settings()
    runner = session.runner.fresh(FIXED_CHUNK)  # as mlx_lm.cache_prompt cuts it
    ids = parts.cached_ids
    row = runner.forward_path(ids, of_prompt(len(ids)), stopped)
    saved = read_saved(Path(command.cache_file), runner.kv.caches, len(ids))
    new_tree = len(session.tree) == 1
    nodes = session.adopt(ids, saved.caches, runner.kv.chunks, row)
    path = PromptPath(parts.cached, ids, nodes, ROOT, session.pending, None, MoveCost(len(ids), 0, ""))
    read = PrefillRun(
        session.runner,
        session.unread,
        None,
        session.tokens,
        session.settings.candidates,
        path,
        False,
    ).tokens
    same = f"by at most {saved.difference:.1e} of their length" if saved.difference else "in no bit"
    whole = all(kind_of(cache).held(cache) == len(ids) and kind_of(cache).columns for cache in saved.caches)
    note = f"{len(ids)} tokens are in the cache file: its numbers differ from a fresh prefill's {same}."
    yield PromptOpened(
        text=parts.cached,
        chat=session.tokens.has_chat_template,
        tokens=tuple(read),
        echo=False,
        notes=(note + ("" if whole else FORGOTTEN),),
        held=len(ids),
        new_tree=new_tree,
    )
    yield from session.prefill(
        parts.text,
        parts.ids,
        parent=nodes[-1],
        chat=parts.chat,
        echo=command.echo,
        messages=(Message("user", command.cached_text + command.text),) if parts.chat else (),
        options=command.options if parts.chat else NO_OPTIONS,
        step_size=command.step_size,
        stopped=stopped,
    )


def _cut(session: Session, command: Prefill) -> PromptParts:
    """What mlx_lm.cache_prompt read, and what mlx_lm.generate would add.

    Raises:
        PromptError: One of both can't be encoded, or the template doesn't write the second behind the first.
    """
    tokens, options = session.tokens, command.options
    cached, templated = command.cached_text, tokens.has_chat_template
    if templated:  # whether or not the rest is raw text: mlx_lm.cache_prompt has no flag for it
        cached = tokens.chat((Message("user", cached),), NO_OPTIONS, opened=True)
    cached_ids = session.encode(cached, bare=templated)
    if not (command.chat and templated):
        # as in mlx_lm, which begins both with the beginning-of-sequence token where the tokenizer has one
        return PromptParts(cached, cached_ids, command.text, session.encode(command.text), False)
    text = tokens.chat((Message("user", command.text),), options)
    pattern = tokens.chat((Message("user", QUERY),), replace(options, config=""))
    begin, found, _ = pattern.partition(QUERY)
    if not found or not text.startswith(begin):
        raise PromptError(
            "The chat template does not write this prompt where the cached one ended.",
            "Leave out --chat-template-config, or give the whole prompt without the file.",
        )
    text = text[len(begin) :]
    return PromptParts(cached, cached_ids, text, session.encode(text, bare=True), True)
