"""How many tokens in a row were the model's first choice: a plug-in with a panel and a kind of document."""

from rich.text import Text

from mlx_inspector import ExportPlugin, PanelPlugin


def draw(shown, width, height):
    """A line for each token that was another choice, the last ones in sight."""
    others, run = [], 0
    for step in shown.steps:
        run = run + 1 if step.rank == 1 else 0
        others += [] if run else [step]
    text = Text(f"now {run} in a row; {len(others)} of {len(shown.steps)} were other choices\n\n")
    for step in others[-max(1, height - 2) :]:
        text.append(f"{step.index + 1:>5}  ", "dim")
        text.append(f"{step.text!r:14}", "bold reverse" if shown.selected == step else "bold")
        text.append(f"  rank {step.rank}, {step.prob:.1%}\n")
    return text


def write(passage):
    """The ranks, a line each."""
    return "".join(f"{step.rank}\n" for step in passage.steps)


PANEL = PanelPlugin(
    "First choices", draw, key="y", help="Show which tokens were not the model's first choice."
)
RANKS = ExportPlugin("ranks", "the rank of each token, a line each", write)
