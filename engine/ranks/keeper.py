"""Wakes a process that waits for a peer that will never come: run as a script while ranks are joined.

`mx.distributed.init` waits for the connection of the rank before without a limit, and keeps Python's interpreter
locked meanwhile (measured: 2 turns of another thread in 31 s), so that no thread of that process can end the wait. This
script is another process: after some seconds it connects to the address itself, and init fails.

Arguments: seconds, then addresses as HOST and PORT. It ends when its stdin does. Standard library alone.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from contextlib import suppress


def main(seconds: float, addresses: list[tuple[str, int]]) -> None:
    """Wait, and wake the addresses every second from then on."""
    wait = seconds
    while not select.select([sys.stdin], [], [], wait)[0]:
        for address in addresses:
            with suppress(OSError):
                socket.create_connection(address, timeout=1).close()
        time.sleep(0.1)
        wait = 1.0


if __name__ == "__main__":
    given = sys.argv[2:]
    main(float(sys.argv[1]), [(host, int(port)) for host, port in zip(given[::2], given[1::2], strict=True)])
