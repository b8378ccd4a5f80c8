"""A letter that the tab What if prints means the same in its views."""

from __future__ import annotations

import pytest

from inspector.main.key_table import key_table
from inspector.views import TOOLS
from inspector.views.interventions import SWITCH_OFF_KEYS
from inspector.views.patching import PATCHING_KEYS
from inspector.views.second_model import SECOND_MODEL_KEYS
from inspector.views.steering import STEERING_KEYS
from inspector.widgets.actions import ActionTable

TABLE = key_table(TOOLS)
TAB = {name: each.id for each in TABLE.actions if each.holds("4") for name in each.names if len(name) == 1}


@pytest.mark.parametrize("table", [SWITCH_OFF_KEYS, PATCHING_KEYS, STEERING_KEYS, SECOND_MODEL_KEYS])
def test_no_key_of_a_view_is_a_letter_of_its_tab(table: ActionTable) -> None:
    for action in table.actions:
        assert {TAB.get(name, action.id) for name in action.names} <= {action.id}, action.id
