"""An engine behind a socket answers as one beside the caller; clients come, go, come back and are refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine import records
from engine.remote.link import ProcessLink
from tests.engine.remote.far import PROGRAM, Far, Host, hosted
from tests.engine.test_thread import Engine
from tests.engine.test_wire import lived, timeless


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with hosted() as host:
        yield host


def test_the_walk_of_the_live_suite_passes_through_a_socket_and_a_process(host: Host) -> None:
    direct = Engine()
    expected = [[timeless(record) for record in part] for part in lived(direct)]
    assert direct.thread.close(10)
    for link in (host.link(), ProcessLink(PROGRAM)):
        far = Far(link, joins=True)
        found = lived(far)
        far.close()
        assert [[timeless(record) for record in part] for part in found] == expected
        steps = [record for record in found[-1] if isinstance(record, records.Step)]
        assert len(steps) == 12
