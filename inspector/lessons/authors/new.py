"""A lesson to begin with."""

from __future__ import annotations

import json

_BODY = """\
## What comes next

The model has read {prompt.count} tokens. Now it gives each token of its vocabulary a probability.

```toml
show = "candidates"
hide = ["candidates"]
act = "step"
look = "last"
answer = "last.text"
hint = "Greedy decoding takes the most probable token."
```

? Which token does it take?

- a comma {,}
- there
- a full stop {.}

> It takes {last.text}: the model gave it {last.prob}, more than any other.

Note: What only the presenter sees.

## How sure is it

One step on, it is either surer or less sure than before: the entropy was {last.entropy}.

```toml
show = "candidates"
act = "step"
look = "last"
keep = {before = "last.entropy"}
answer = "last.entropy < before"
```

? Is it surer of the next token?

- surer {true}
- less sure {false}

> The entropy is {last.entropy} now, after {before}: {last.text} had {last.prob}.
"""


def new_lesson(title: str) -> str:
    """The text of a lesson that works as it is: two beats on the bundled model.

    Args:
        title: Of the lesson.
    """
    head = f"""\
+++
title = {json.dumps(title, ensure_ascii=False)}
about = "What it corrects, in one sentence."
minutes = 3
prompt = "Once upon a time"
settings = {{temp = 0}}
+++

"""
    return head + _BODY
