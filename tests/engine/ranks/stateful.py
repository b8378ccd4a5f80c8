"""Random walks over the tree on ranks and in one process: ids, costs and logits are equal at each.

`main` runs on each rank, with the same choices; rank 0 prints one JSON object: rules that were run, and the largest
difference of a logit.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from engine.breakpoints import Breakpoints
from engine.decoding.beam import search
from engine.decoding.lookahead import lines_ahead
from engine.errors import Cancelled
from engine.ranks.group import joined
from engine.session.run import BreakpointEvaluator, run
from engine.session.session import Session
from engine.settings import BeamSettings
from tests.engine.ranks.walks import Compared, sessions, written
from tests.engine.sessions import go_back, go_forward

BOUND = 1e-4
"""Of a logit, in float32; the largest are about 6, and 1e-5 was seen."""
QUANTIZED = 0.1
"""With keys and values of 8 bits, whose quanta the last bits of a sum may cross (as in test_walks.py)."""


def walk(both: Compared, bound: float, counts: dict[str, int]) -> type[RuleBasedStateMachine]:
    """The walk over two sessions, which begins anew with each example."""

    class Walk(RuleBasedStateMachine):
        @initialize(prompt=st.lists(st.integers(3, 500), min_size=1, max_size=20))
        def begin(self, prompt: list[int]) -> None:
            both.over.forget()
            both.alone.forget()
            both.do(lambda session: len(list(session.prefill("", prompt))))

        @rule()
        def step(self) -> None:
            both.step()

        @rule(place=st.integers(0, 3))
        def choose(self, place: int) -> None:
            token = both.over.next.candidates[place].id
            both.do(lambda session: session.choose(token), lambda step: step.id)

        @rule(count=st.integers(1, 6))
        def back(self, count: int) -> None:
            both.do(lambda session: go_back(session, count), _cost)

        @rule(count=st.integers(1, 6))
        def forward(self, count: int) -> None:
            both.do(lambda session: go_forward(session, count), _cost)

        @rule(data=st.data())
        def move(self, data: st.DataObject) -> None:
            node = data.draw(st.integers(1, len(both.over.tree) - 1))
            both.do(lambda session: len(list(session.move_and_step(node))))

        @rule(data=st.data(), after=st.integers(0, 2))
        def cancelled_move(self, data: st.DataObject, after: int) -> None:
            node = data.draw(st.integers(1, len(both.over.tree) - 1))

            def go(session: Session) -> None:
                left = after

                def stopped() -> bool:
                    nonlocal left
                    left -= 1
                    return left < 0

                with suppress(Cancelled):
                    list(session.move_and_step(node, stopped))

            both.do(go)

        @rule(ids=st.lists(st.integers(3, 500), min_size=1, max_size=12))
        def another_prompt(self, ids: list[int]) -> None:
            both.do(lambda session: len(list(session.prefill("", ids))))

        @rule(ids=st.lists(st.integers(3, 500), min_size=1, max_size=6))
        def turn(self, ids: list[int]) -> None:
            both.do(lambda session: len(list(session.prefill("", ids, parent=session.node))))

        @rule(tokens=st.integers(1, 3))
        def ahead(self, tokens: int) -> None:
            ids = [each.id for each in both.over.next.candidates[:3]]
            both.do(
                lambda session: list(lines_ahead(session, session.node, ids, tokens))[-1],
                lambda last: [line.ids for line in last.lines],
            )

        @rule(width=st.integers(2, 3))
        def beams(self, width: int) -> None:
            both.do(lambda session: list(search(session, BeamSettings(width, max_tokens=3)))[-1], _ranking)

        @rule(count=st.integers(1, 4))
        def run_on(self, count: int) -> None:
            both.do(lambda session: _run_on(session, count), lambda ids: ids)

        @rule()
        def reroll(self) -> None:
            both.do(lambda session: session.reroll(), lambda next: next.picked)

        @rule()
        def verify(self) -> None:
            both.do(lambda session: session.verify().largest_difference < 10 * bound, lambda near: near)

        @invariant()
        def equal(self) -> None:
            counts["rules"] += 1
            assert both.same, "ids, costs or nodes differ"
            assert both.largest < bound, both.largest
            over, alone = both.over.kv.reading(), both.alone.kv.reading()
            assert (over.offset, over.passed_tokens) == (alone.offset, alone.passed_tokens)
            if "replicated" not in counts:
                assert over.groups == alone.groups

    return Walk


def _run_on(session: Session, count: int) -> list[int]:
    """Ids of a run that a breakpoint ends; one that is let go has a token more in its tree where it goes ahead."""
    ends = BreakpointEvaluator(session, [Breakpoints(tokens=count)])
    return [step.id for step in run(session, lambda: False, ends)]


def _cost(moved: Any) -> Any:
    return moved.kept, moved.restored, moved.recomputed, moved.note


def _ranking(ended: Any) -> Any:
    return [hypothesis.ids for hypothesis in ended.ranking]


def main(folder: str, ranks: str, shard: str, name: str, rules: str, *given: str) -> None:
    """Walk until as many rules were run, some 50 to an example."""
    options: dict[str, Any] = {key: int(value) for key, value in (setting.split("=") for setting in given)}
    if "no_kv_cache" in options:
        options["no_kv_cache"] = True
    over, alone = sessions(written(Path(folder), name, int(ranks)), int(ranks), shard, **options)
    counts = {"rules": 0}
    both = Compared(over, alone)
    machine = walk(both, QUANTIZED if "kv_bits" in options else BOUND, counts)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(1, int(rules) // 50),
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
    if joined().rank == 0:
        print(json.dumps({**counts, "largest": both.largest}), flush=True)
