"""Confines this process to a folder, for people who are not its user: the visitors of `inspector serve`.

There are two walls. `check` refuses a path that a person named: outside their folder it says nothing of a file, not
even whether it is there. Python's own audit events refuse, wherever in the program or a library it is tried, to write
outside the folder, to read what is neither there nor the program's own, to start a program, and to reach the network.
Libraries in C and Rust raise no such events: they get the paths of models, of the host's list alone, and those that
were checked. Standard library alone.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.frozen import frozen

VARIABLE = "INSPECTOR_CONFINED"
"""Environment variable: the `Confinement` of a process, as JSON."""
OUTSIDE = "it is outside your folder"
_PACKAGES = tuple(str(Path(__file__).resolve().parents[1] / name) for name in ("engine", "inspector"))
_SYSTEM = (
    "/usr/share", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/localtime", "/etc/mime.types",
    "/etc/ssl", "/var/db/timezone", "/sys", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version",
    "/dev/urandom", "/dev/random", "/System", "/Library", "/opt/homebrew",
)  # fmt: skip
"""What libraries read of a system: nothing of a person."""
_OF_PROCESS = ("maps", "statm", "stat", "status", "cgroup", "mountinfo")
"""Files of this process below /proc; its environment, memory and root are not among them."""
_DEVICES = ("/dev/null", "/dev/tty")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NETWORK = ("socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg")
_FORBIDDEN = frozenset(
    {"os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.startfile", "pty.spawn",
     "socket.getaddrinfo", "socket.gethostbyname"}
)  # fmt: skip


@frozen
class Confinement:
    """The files and models that a process may use."""

    folder: str = ""
    """Where it may read and write, resolved; empty where it may write nothing."""
    readable: tuple[str, ...] = ()
    """Files and directories that it may read besides, resolved."""
    models: Mapping[str, str] | None = None
    """The directories of the models that it may load, resolved, by their names."""

    def as_json(self) -> str:
        """As `VARIABLE` has it."""
        return json.dumps({"folder": self.folder, "readable": self.readable, "models": self.models or {}})


_now: Confinement | None = None
"""Of this process; None while it is not confined."""


def begin() -> None:
    """Confine this process from here on, if its environment says so; there is no way back."""
    global _now
    given = os.environ.pop(VARIABLE, None)
    if given is None:
        return
    values = json.loads(given)
    _now = Confinement(values["folder"], tuple(values["readable"]), values["models"])
    sys.dont_write_bytecode = True
    sys.addaudithook(_hook(_now))


def confined() -> bool:
    """True if this process is confined."""
    return _now is not None


def writes() -> bool:
    """True if this process may write files at all."""
    return _now is None or bool(_now.folder)


def folder() -> str | None:
    """Where files go that nobody named a place for; None for the usual one."""
    return _now.folder if _now is not None else None


def models() -> Mapping[str, str] | None:
    """The models that may be loaded, as directories by their names; None for any."""
    return _now.models or {} if _now is not None else None


def check(path: Path | str) -> None:
    """Refuse a path that a person named, where it is outside.

    Raises:
        PermissionError: It is.
    """
    if _now is None:
        return
    if not _below(_real(path), (_now.folder, *_now.readable, *(_now.models or {}).values())):
        raise _refusal(path)


def check_home(text: str) -> None:
    """Refuse a path that begins with another person's home, before the system is asked who there is.

    Raises:
        PermissionError: It does.
    """
    home = text.partition("/")[0]
    if _now is not None and home.startswith("~") and home != "~":
        raise _refusal(text)


# ---- the second wall --------------------------------------------------------------------------


def _hook(now: Confinement) -> Callable[[str, tuple[Any, ...]], None]:
    """What Python calls at each of its audit events."""
    import site
    import sysconfig  # few processes are confined

    places = {*sys.path, sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), *_SYSTEM,
              site.getusersitepackages(), *sysconfig.get_paths().values()}  # fmt: skip
    own = tuple(f"/proc/{os.getpid()}/{name}" for name in _OF_PROCESS)
    written = (now.folder, *_DEVICES)
    read = (
        *written,
        *now.readable,
        *(now.models or {}).values(),
        *_PACKAGES,
        *own,
        *map(_real, filter(None, places)),
    )

    def need(path: Any, allowed: Sequence[str]) -> None:
        if path is not None and not isinstance(path, int) and not _below(_real(path), allowed):
            raise _refusal(path)

    def opened(path: Any, mode: str | None, flags: int) -> None:
        need(path, written if flags & _WRITES or set(mode or "") & set("wax+") else read)

    def changed(path: Any, *rest: Any) -> None:
        need(path, written)

    def both(path: Any, other: Any, *rest: Any) -> None:
        need(path, written)
        need(other, written)

    def listed(path: Any = None, *rest: Any) -> None:
        need(path or ".", read)

    def started(program: Any, arguments: Any, *rest: Any) -> None:
        script = list(arguments)[1:]  # `engine.processes`: a script of ours, which no person's path reaches
        if program != sys.executable or script[:2] != ["-I", "-S"] or not _below(_real(script[2]), _PACKAGES):
            raise PermissionError(errno.EACCES, "visitors can't start programs", str(program))

    def addressed(connection: Any, address: Any = None, *rest: Any) -> None:
        if not isinstance(address, str | bytes):
            raise PermissionError(errno.EACCES, "visitors can't reach the network")
        need(address, written)

    checks: dict[str, Callable[..., None]] = {
        "open": opened, "subprocess.Popen": started, "os.listdir": listed, "os.scandir": listed, "os.chdir": listed,
        "os.rename": both, "os.link": both, "os.symlink": lambda target, path, *rest: need(path, written),
        "os.mkdir": changed, "os.rmdir": changed, "os.remove": changed, "os.truncate": changed, "os.chmod": changed,
        "os.chown": changed, "os.utime": changed,
        **dict.fromkeys(_NETWORK, addressed),
    }  # fmt: skip

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in checks:
            checks[event](*arguments)
        elif event in _FORBIDDEN:
            raise PermissionError(errno.EACCES, "visitors can't do that", event)

    return heard


def _real(path: Any) -> str:
    """A path without links and dots; where it can't be a path, one that nothing is below."""
    try:
        return os.path.realpath(os.fsdecode(path))
    except (ValueError, OSError):
        return ""


def _below(path: str, places: Sequence[str]) -> bool:
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in places if place)


def _refusal(path: Any) -> PermissionError:
    return PermissionError(errno.EACCES, OUTSIDE, str(path))
