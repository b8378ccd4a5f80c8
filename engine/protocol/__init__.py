"""The commands that go into an engine, and the records that come out of it: a module for each subject.

Both are frozen msgspec Structs of plain values. The engine answers every command but `Cancel` with records; the last of
them is one `Ended`, after a `Failure` if the command failed. Ids go beside them: `Sent` and `Received`. Everything that
the screen shows, a subcommand prints and a recording keeps is a record. Units are in the names: `ms`
milliseconds, `bytes` bytes, `bits` base-2, `logprob` natural logarithm, `tps` tokens a second.

A class below `Command` or `Record` in one of these modules can be sent or recorded: nothing else lists them.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.protocol.base import *
from engine.protocol.base import Command, Interleavable, OneProcess, Record, Stoppable
from engine.protocol.decoding import *
from engine.protocol.inside import *
from engine.protocol.interventions import *
from engine.protocol.lockstep import *
from engine.protocol.measuring import *
from engine.protocol.model import *
from engine.protocol.session import *
from engine.protocol.steps import *
from engine.protocol.tokens import *
from engine.protocol.training import *

_BASES = (Command, Inside, Interleavable, Look, Measure, OneProcess, Record, Stoppable)
_CLASSES = [each for _, each in sorted(globals().items()) if isinstance(each, type) and each not in _BASES]
COMMANDS: Mapping[str, type[Command]] = {each.kind: each for each in _CLASSES if issubclass(each, Command)}
"""Every command by its kind."""
RECORDS: Mapping[str, type[Record]] = {each.__name__: each for each in _CLASSES if issubclass(each, Record)}
"""Every record by its name."""
