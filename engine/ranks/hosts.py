"""Where ranks run: on this machine, or on the hosts of a file of mlx.launch; and the addresses at which they meet.

The format is that of `mlx.launch --hostfile`: a list of hosts, or an object with `hosts`, `backend` and `envs`:

    [{"ssh": "127.0.0.1", "ips": ["192.168.1.1"]}, {"ssh": "mac-2", "ips": ["192.168.1.2"]}]

The first host is this process.

The other ranks are processes with operations on stdin and answers on stdout. Standard library alone.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from engine.errors import EngineError, LoadError
from engine.files import CONFIG_LIMIT, read_regular, typed
from engine.processes import ending_of, python_command
from engine.settings import MOST_RANKS, LoadSettings

LOOPBACK = "127.0.0.1"
FIRST_PORT = 32323
"""Of the first rank, as in mlx.launch, where a rank runs on another machine: what is free here may not be there."""
PORT_VARIABLE = "INSPECTOR_RANKS_PORT"
"""An environment variable with another first port."""
BACKENDS = ("ring", "jaccl", "jaccl-ring")
"""Those of MLX by which ranks can be joined here; the last two, of Macs with Thunderbolt, could not be tried."""


class RankHost(Struct, frozen=True):
    """Where one rank runs."""

    ssh: str
    """What `ssh` calls its machine; 127.0.0.1 for this one."""
    ips: tuple[str, ...]
    """At which the other ranks reach it."""
    rdma: tuple[Any, ...] = ()
    """Its device towards each rank, for jaccl."""

    @property
    def local(self) -> bool:
        """True if it is this machine."""
        return self.ssh in (LOOPBACK, "localhost", "::1")


class RankMeeting(Struct, frozen=True):
    """How MLX learns where the ranks meet."""

    files: dict[str, str]
    """Contents of files, by the variable that names the file."""
    variables: dict[str, str]
    address: tuple[str, int]
    """Where rank 0 waits for another one."""


class RankHosts(Struct, frozen=True):
    """The ranks' places, in their order, and how they are joined."""

    ranks: tuple[RankHost, ...]
    backend: str = "ring"
    envs: tuple[str, ...] = ()
    """Environment variables of each rank, as NAME=VALUE."""

    def meeting(self) -> RankMeeting:
        """Choose where the ranks meet.

        Raises:
            LoadError: There is no such port, or it is taken.
        """
        ports = self._ports()
        if self.backend == "ring":
            nodes = [
                [f"{_bracketed(ip)}:{port}" for ip in host.ips]
                for host, port in zip(self.ranks, ports, strict=True)
            ]
            return RankMeeting(
                {"MLX_HOSTFILE": json.dumps(nodes)}, self._variables(), (self.ranks[0].ips[0], ports[0])
            )
        ring = {"MLX_JACCL_RING": "1"} if self.backend == "jaccl-ring" else {}
        coordinator = {"MLX_JACCL_COORDINATOR": f"{self.ranks[0].ips[0]}:{ports[0]}"}
        devices = {"MLX_IBV_DEVICES": json.dumps([host.rdma for host in self.ranks])}
        variables = {**self._variables(), **coordinator, **ring}
        return RankMeeting(devices, variables, (self.ranks[0].ips[0], ports[0]))

    def _variables(self) -> dict[str, str]:
        return dict(variable.split("=", 1) for variable in self.envs)

    def _ports(self) -> list[int]:
        count, text = len(self.ranks), os.environ.get(PORT_VARIABLE, "")
        if not text and all(host.local for host in self.ranks):
            return _free_ports(count)
        first = int(text) if text.isascii() and text.isdigit() else 0 if text else FIRST_PORT
        if not 1 <= first <= 65536 - count:
            raise LoadError(
                f"{PORT_VARIABLE} must be a port from 1 to {65536 - count}, not {text}.", "Give another one."
            )
        ports = [first + place for place in range(count)]
        for host, port in zip(self.ranks, ports, strict=True):
            if host.local:
                _check_free(host.ips[0], port)
        return ports


def hosts_of(settings: LoadSettings) -> RankHosts:
    """The places of the ranks that load settings ask for.

    Raises:
        LoadError: The hostfile can't be read, or names other ranks than the settings.
    """
    if not settings.hostfile:
        return RankHosts((RankHost(LOOPBACK, (LOOPBACK,)),) * settings.ranks)
    path = typed(settings.hostfile)
    try:
        hosts = _parsed(json.loads(read_regular(path, CONFIG_LIMIT)))
    except (EngineError, OSError, ValueError, RecursionError) as error:
        raise LoadError(f"The hostfile {path} can't be used ({_words(error)}).", _HINT) from error
    if settings.ranks not in (1, len(hosts.ranks)):
        raise LoadError(
            f"The hostfile {path} names {len(hosts.ranks)} hosts, and {settings.ranks} ranks were asked for.",
            "Leave --ranks out.",
        )
    return hosts


_HINT = "It lists hosts as mlx.launch does, each with ssh and ips."


def _parsed(content: Any) -> RankHosts:
    table = content if isinstance(content, dict) else {"hosts": content}
    entries, backend, envs = table.get("hosts"), table.get("backend") or "ring", table.get("envs") or []
    if not isinstance(entries, list) or not 2 <= len(entries) <= MOST_RANKS:
        raise ValueError(f"it must list from 2 to {MOST_RANKS} hosts")
    if backend not in BACKENDS:
        raise ValueError(f"its backend must be one of {', '.join(BACKENDS)}")
    if not isinstance(envs, list) or not all(isinstance(env, str) and "=" in env for env in envs):
        raise ValueError("its envs must be a list of NAME=VALUE")
    hosts = RankHosts(tuple(_host(place, entry) for place, entry in enumerate(entries)), backend, tuple(envs))
    if not hosts.ranks[0].local:
        raise ValueError(f"its first host is this process: its ssh must be {LOOPBACK}")
    if backend != "ring" and any(len(host.rdma) != len(entries) for host in hosts.ranks):
        raise ValueError(f"for {backend} each host needs an rdma device for each of the others")
    return hosts


def _host(place: int, entry: Any) -> RankHost:
    ssh = entry.get("ssh") if isinstance(entry, dict) else None
    if not isinstance(ssh, str) or not ssh or ssh.startswith("-") or not ssh.isprintable():
        raise ValueError(
            f"host {place} has no ssh that is a name"
        )  # with a hyphen ssh would take it for an option
    ips, rdma = entry.get("ips"), entry.get("rdma") or []
    if ips is None and RankHost(ssh, ()).local:
        ips = [LOOPBACK]
    if not isinstance(ips, list) or not ips or not all(isinstance(ip, str) for ip in ips):
        raise ValueError(f"host {place} has no ips")
    for ip in ips:
        ipaddress.ip_address(ip)
    if not isinstance(rdma, list):
        raise ValueError(f"the rdma of host {place} is not a list")
    return RankHost(ssh, tuple(ips), tuple(rdma))


def _words(error: Exception) -> str:
    return (error.message if isinstance(error, EngineError) else str(error)).rstrip(".")


def _bracketed(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment."""
    held = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _check_free(ip: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    try:
        socket.create_server((ip, port), family=family).close()
    except OSError as error:
        raise LoadError(
            f"Ranks can't meet at {ip}, port {port} ({error.strerror}).",
            f"End the program that uses the port, or set {PORT_VARIABLE} to another first port.",
        ) from error


# ---- one of the other ranks, as rank 0 sees it -------------------------------------------------
# What it writes to stderr goes to a file without a name, of mode 0600 in the directory for temporary files: nothing of
# it is left behind whatever way a process ends, and its last lines are what the process said last. Standard library
# alone.

MODULE = "engine.ranks.rank"
LAST_BYTES = 8192
"""Of its stderr, the end that is read."""
LONGEST = 240
"""Characters of its last words."""
_NOISE = re.compile(r"^\[ring\] ")
"""What MLX's ring writes when a peer is gone: an effect, not the cause."""

Arrived = Callable[[int, Mapping[str, Any] | None], None]
"""Takes a rank and its answer, or None once its stdout has ended; called in a thread."""


class RankProcess:
    """A rank that was started.

    Args:
        rank: Its number.
        host: Where it runs.
        arrived: Takes its answers.

    Raises:
        OSError: It can't be started.
    """

    def __init__(self, rank: int, host: RankHost, arrived: Arrived) -> None:
        self.rank, self.host = rank, host
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            _command(rank, host),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # a Ctrl-C of the terminal is answered by rank 0
        )
        self._arrived = arrived
        self._reader = threading.Thread(target=self._read, name=f"rank {rank}", daemon=True)
        self._reader.start()

    @property
    def name(self) -> str:
        """Its number, with its machine where that is another one."""
        return f"rank {self.rank}" + ("" if self.host.local else f" on {self.host.ssh}")

    @property
    def pid(self) -> int:
        """Of the process that was started here: ssh, for a rank on another machine."""
        return self._process.pid

    def send(self, line: bytes) -> None:
        """Send it a line; where it has ended, nothing happens, since `arrived` says so."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def close_input(self) -> None:
        """End its stdin, at which it ends itself."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.close()

    def kill(self) -> None:
        """End it at once, also where it was stopped; on another machine the end of its stdin ends it."""
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def ended(self, seconds: float) -> str:
        """Wait for its end.

        Returns:
            How it ended; empty where it has not.
        """
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return ""
        return ending_of(status)

    def last_words(self) -> str:
        """The last line of its stderr that says something, shortened; empty where there is none."""
        with suppress(OSError, ValueError):
            end = os.fstat(self._errors.fileno()).st_size
            text = os.pread(self._errors.fileno(), LAST_BYTES, max(0, end - LAST_BYTES))
            lines = [line.strip() for line in text.decode(errors="replace").splitlines()]
            said = [line for line in lines if line and not _NOISE.match(line)]
            return said[-1][:LONGEST] if said else ""
        return ""

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                answer = json.loads(line)
            except ValueError:
                answer = {"error": "it wrote something that is not an answer"}
            self._arrived(self.rank, answer if isinstance(answer, dict) else {"error": "no object"})
        self._arrived(self.rank, None)


def _command(rank: int, host: RankHost) -> list[str]:
    """What starts a rank: here with the modules of this process, elsewhere with the same Python and directory."""
    if host.local:
        return python_command(f"import {MODULE} as rank; rank.main({rank})")
    there = f"cd {shlex.quote(os.getcwd())} && exec {shlex.quote(sys.executable)} -m {MODULE} {rank}"
    return ["ssh", "-T", "-o", "BatchMode=yes", host.ssh, there]
