"""The candidates of one token as a table with bars, what each stage left, and the draw as a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from xml.etree.ElementTree import Element

from engine.frozen import frozen
from engine.protocol import Candidate, Distribution, PromptToken, Step
from inspector.display import token_label, visible
from inspector.scales import count, others_prob, percent
from inspector.state.session_tree import Item
from inspector.tools.export.element import element, row, table

ROWS = 10
"""The most probable ones; the one that was taken is shown, whatever its rank."""


@frozen
class TokenChoice:
    """What one token is, or will be, taken from."""

    title: str
    candidates: tuple[Candidate, ...]
    others: int
    """Tokens that are not among them."""
    others_prob: float
    taken: int | None
    """Id of the one that was, or will be, taken; None where it is to be predicted."""
    distribution: Distribution | None = None
    """None in the prompt, where nothing is drawn."""


def of_next(distribution: Distribution, concealed: bool) -> TokenChoice:
    """What follows the last token.

    Args:
        distribution: Of it.
        concealed: Whether the one that is picked is to be predicted.
    """
    made = TokenChoice(
        "What can come next", distribution.candidates, distribution.others, distribution.others_prob, None
    )
    return replace(made, taken=None if concealed else distribution.picked, distribution=distribution)


def of_token(item: Item, vocabulary: int) -> TokenChoice:
    """What a token of the text was taken from."""
    label = token_label(item.text, item.raw)
    if isinstance(item, Step):
        made = of_next(item.choice, False)
        title = f"What could have come at step {item.index + 1}, where {label} was taken"
        return TokenChoice(title, made.candidates, made.others, made.others_prob, item.id, item.choice)
    return _of_prompt(item, label, vocabulary)


def _of_prompt(item: PromptToken, label: str, vocabulary: int) -> TokenChoice:
    title = f"What the model expected in the place of {label}"
    others = max(0, vocabulary - len(item.candidates))
    return TokenChoice(title, item.candidates, others, others_prob(item), item.id)


def section(choice: TokenChoice, stages: bool) -> Element:
    """The table, the draw, and what each stage of the sampler left."""
    shown = [each for each in choice.candidates if each.rank <= ROWS or each.id == choice.taken][: ROWS + 1]
    drawn = choice.distribution is not None and not _tells(choice.distribution, choice.taken)
    most = (
        max([each.prob for each in shown] + [each.sampler_prob for each in shown if drawn], default=1.0)
        or 1.0
    )
    rows = [_row(each, most, choice.taken, drawn) for each in shown]
    left = [each for each in choice.candidates if each not in shown]
    others, mass = choice.others + len(left), choice.others_prob + sum(each.prob for each in left)
    if others > 0:
        rows.append(row("", f"{count(others)} others", "", percent(mass), "", class_="others"))
    head = ("", "candidate", "", "model", "sampler" if drawn else "")
    return element(
        "section",
        table(choice.title, head, rows, class_="candidates"),
        *(_draw(choice.distribution, choice.taken) if choice.distribution is not None else ()),
        _stages(choice.distribution) if stages and choice.distribution is not None else None,
    )


def _tells(distribution: Distribution, taken: int | None) -> bool:
    """Whether the sampler's numbers tell what is to be predicted: without a draw one token has all of it."""
    return taken is None and distribution.draw is None


def _row(each: Candidate, most: float, taken: int | None, drawn: bool) -> Element:
    own = each.id == taken
    sampler = "" if not drawn else visible(each.cut_by) if each.cut_by else percent(each.sampler_prob)
    made = row(
        element("span", "▶", role="img", aria_label="taken") if own else "",
        token_label(each.text, each.raw),
        _bar(each, most, drawn),
        percent(each.prob),
        sampler,
        class_="taken" if own else "cut" if each.cut_by else None,
    )
    made[1].set("class", "label")
    made[2].set("class", "bar")
    return made


def _bar(each: Candidate, most: float, drawn: bool) -> Element:
    """Two bars in one: what the model gives, and below it what the sampler draws with."""
    model = element("rect", class_="model", y=1, height=7 if drawn else 12, width=_part(each.prob, most))
    sampler = element("rect", class_="sampler", y=9, height=4, width=_part(each.sampler_prob, most))
    return element("svg", model, sampler if drawn else None,
                   viewBox="0 0 100 14", preserveAspectRatio="none", aria_hidden="true")  # fmt: skip


def _part(share: float, most: float) -> str:
    return f"{100 * share / most:.2f}"


def _draw(distribution: Distribution, taken: int | None) -> Iterator[Element]:
    """The line from 0 to 1 that the random number fell on, cut into the shares of the candidates."""
    draw, low, high = distribution.draw, distribution.draw_from, distribution.draw_to
    if draw is None or low is None or high is None:
        return
    known = taken == distribution.picked
    again = f", drawn again {distribution.reroll}×" if distribution.reroll else ""
    words = (
        f"The draw {draw:.3f} fell on {low:.3f} to {high:.3f}{again}"
        if known
        else f"The draw is {draw:.3f}{again}"
    )
    shapes = [element("rect", class_="rest", x=0.5, y=8, width=999, height=10)]
    edge = 0.0
    for place, share in enumerate(_shares(distribution.candidates)):
        name = "odd" if place % 2 else "even"
        shapes.append(element("rect", class_=name, x=_at(edge), y=8, width=_at(share), height=10))
        edge += share
    if known:
        width = _at(max(0.0015, high - low))
        shapes.append(element("rect", class_="taken", x=_at(low), y=8, width=width, height=10))
    shapes.append(element("rect", class_="drawn", x=f"{draw * 1000 - 1.5:.2f}", y=0, width=3, height=26))
    line = element("svg", *shapes, viewBox="0 0 1000 26", preserveAspectRatio="none", aria_hidden="true")
    yield element("div", element("p", words), line, class_="draw")


def _shares(candidates: Sequence[Candidate]) -> list[float]:
    return sorted((each.sampler_prob for each in candidates if each.sampler_prob > 0), reverse=True)


def _at(share: float) -> str:
    return f"{share * 1000:.2f}"


def _stages(distribution: Distribution) -> Element | None:
    if not distribution.stages:
        return None
    lines = []
    for stage in distribution.stages:
        took = f", took out {percent(stage.removed_mass)}" if stage.removed_mass else ""
        plural = "" if stage.kept == 1 else "s"
        words = f" left {count(stage.kept)} token{plural}{took}"
        lines.append(element("li", element("b", visible(stage.name)), words))
    return element(
        "div", element("p", "The sampler's stages, in their order"), element("ol", *lines), class_="stages"
    )
