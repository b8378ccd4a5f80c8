"""mlx-inspector from Python: `open` a session, `run` it, go back `at` a step, `take` another token, and `compare`.

See `inspector.api` for all that these do, and `inspector.results` for what they answer with.
"""


def _check_names() -> None:
    """A module of the user's own may have the name of one of our packages, and be found before it.

    Raises:
        ImportError: One is.
    """
    from importlib.util import find_spec
    from pathlib import Path

    own = Path(__file__).resolve().parent
    for name in ("engine", "inspector"):
        spec = find_spec(name)
        places = [*(spec.submodule_search_locations or ()), spec.origin or ""] if spec is not None else []
        if own / name not in (Path(place).resolve() for place in places):
            raise ImportError(
                f"mlx-inspector has a package named {name}, and Python finds {places[0] if places else 'none'} "
                "before it. Rename that, or start Python in another directory."
            )


_check_names()

from engine.errors import EngineError  # noqa: E402
from inspector.api import Branch, Run, Session, Tree, compare, open, train  # noqa: E402
from inspector.results import (  # noqa: E402
    Answer,
    Attention,
    Comparison,
    Contributions,
    Direction,
    Experts,
    Gradients,
    Lens,
    Merges,
    ModelMap,
    Moved,
    Sampler,
    Scores,
    Step,
    WhatIf,
)

__all__ = [
    "Answer",
    "Attention",
    "Branch",
    "Comparison",
    "Contributions",
    "Direction",
    "EngineError",
    "Experts",
    "Gradients",
    "Lens",
    "Merges",
    "ModelMap",
    "Moved",
    "Run",
    "Sampler",
    "Scores",
    "Session",
    "Step",
    "Tree",
    "WhatIf",
    "compare",
    "open",
    "train",
]
