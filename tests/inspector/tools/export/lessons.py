"""A lesson whose every text wants to be more than text, and its recording, in which tokens do, too."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from engine.settings import LoadSettings
from engine.trace import TraceReader, save_as
from inspector.lessons.catalogue import Listed, recording_of
from inspector.lessons.headless import record
from inspector.lessons.reading import read

IMAGE = "<img src=x onerror=pwned=1>"
SCRIPT = "</script><script>pwned=1</script>"
TOKENS = {" girl": IMAGE, " little": SCRIPT, " dog": "\u202e\x1b[31m\u2028{{script}}"}
"""By what the model has: what the recording says in its place."""
SECRET = "nobody but the presenter"
LESSON = f"""+++
title = "{SCRIPT}"
about = "</p>{IMAGE}"
minutes = 3
prompt = "Once upon a time, there was a little"
settings = {{temp = 1.0, seed = 3}}
+++

## Begin {IMAGE}

Only a text, with {{next.entropy}} bits.

## The draw

All shares are laid end to end. </div>{SCRIPT}

```toml
show = "candidates"
look = "step 1"
act = "step"
answer = "last.text"
hide = ["picked", "text"]
number = "last.draw"
```

? Which token </p>{IMAGE}?

- girl
- boy
- {IMAGE}

> It fell on {{last.text}}. {SCRIPT}

Note: {SECRET}

## Without doing

```toml
show = "steps"
look = "step 1"
hide = ["probabilities"]
answer = "step(1).rank"
```

? Which rank had it?

- the first {{1}}
- another one {{2..}}

> It was number {{step(1).rank}}.

## Two beams

```toml
show = "beams"
act = "beams width=2 max_tokens=8"
answer = "beams.length"
```

? How long is the best?

- eight tokens {{8}}
- another length {{..8}}

> {{beams.length}} tokens, and greedy has {{beams.greedy_logprob:.2}}.

## Only doing

One more step.

```toml
show = "kv"
act = "step"
```

> The cache holds {{kv.tokens}} tokens now.
"""


def recorded(folder: Path) -> Listed:
    """The lesson, recorded live with the bundled model; then its tokens get other texts."""
    path = folder / "hostile.md"
    path.write_text(LESSON, encoding="utf-8")
    lesson, trace = read(path), recording_of(path)
    record(lesson, trace, LoadSettings("pocket"))
    with TraceReader(trace) as reader:
        entries = [replace(entry, value=_poisoned(entry.value)) for entry in reader]
    save_as(trace, entries, "test", force=True)
    return Listed(0, path, lesson)


def _poisoned(value: Any) -> Any:
    if isinstance(value, str):
        return TOKENS.get(value, value)
    if isinstance(value, tuple):
        return tuple(map(_poisoned, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{each.name: _poisoned(getattr(value, each.name)) for each in fields(value) if each.init}
        )
    return value
