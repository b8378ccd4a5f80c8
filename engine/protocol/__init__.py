"""The commands that an engine receives and the records that it emits, with a module for each subject.

Both are frozen msgspec Structs of plain values. The engine answers every command except `Cancel` with records; the last
one is `Ended`, after a `Failure` if the command failed. The envelopes `Sent` and `Received` add the command's id.
Everything that the screen shows, a subcommand prints or a recording contains is a record. Names contain the units:
`ms` milliseconds, `bytes` bytes, `bits` base-2 logarithm, `logprob` natural logarithm, `tps` tokens per second.

Every subclass of `Command` or `Record` in these modules can be sent or recorded; there is no other list of them.
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
"""All command classes by kind."""
RECORDS: Mapping[str, type[Record]] = {each.__name__: each for each in _CLASSES if issubclass(each, Record)}
"""All record classes by name."""
