"""What answers commands: the live engine, or a recording in its place."""

from __future__ import annotations

from typing import Protocol

from engine.protocol import Command


class Backend(Protocol):
    """Takes commands; its records come back through the function that it was made with."""

    def start(self) -> None:
        """Begin to take commands."""

    def send(self, command: Command) -> None:
        """Take a command: records follow in order, closed by `Ended` of its number. `Cancel` takes effect at once."""

    def close(self, timeout: float = 2.0) -> bool:
        """Cancel everything and end.

        Args:
            timeout: Seconds to wait.

        Returns:
            Whether it ended in time.
        """


class IdleBackend:
    """Answers nothing: what is shown was recorded."""

    def start(self) -> None:
        """Nothing is to be started."""

    def send(self, command: Command) -> None:
        """Nothing takes it."""

    def close(self, timeout: float = 2.0) -> bool:
        """Nothing is to be ended."""
        return True
