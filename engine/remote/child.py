"""The other end of `ProcessLink`: an engine in a process of its own, which ends when its connection does."""

from __future__ import annotations

import os
import socket

from engine.remote.server import EngineServer

END_SECONDS = 1.5


def main(descriptor: int, program: str) -> None:
    """Serve the one connection that was inherited, then end the process at once.

    Args:
        descriptor: Of a connected socket.
        program: Version of the program.
    """
    status = 1
    try:
        server = EngineServer("", program)
        server.start()
        server.meet(socket.socket(fileno=descriptor))
        server.close(END_SECONDS)
        status = 0
    finally:
        os._exit(status)  # a thread that still uses MLX would abort the interpreter's own way out
