"""The hosts of the ranks, this machine or those of a file, and the command that starts the ranks through mlx.launch.

The format is that of `mlx.launch --hostfile`: a list of hosts, or an object with `hosts`, `backend` and `envs`:

    [{"ssh": "127.0.0.1", "ips": ["192.168.1.1"]}, {"ssh": "mac-2", "ips": ["192.168.1.2"]}]

The first host is this machine. MLX is not imported.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import signal
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from engine.errors import EngineError, LoadError
from engine.files import CONFIG_LIMIT, read_regular, typed
from engine.processes import ending_of, python_command
from engine.settings import MOST_RANKS, LoadSettings

LOOPBACK = "127.0.0.1"
FIRST_PORT = 32323
"""First port of ranks on several machines, as in mlx.launch: a port that is free here may not be free there."""
PORT_VARIABLE = "INSPECTOR_RANKS_PORT"
"""Name of an environment variable with another first port."""
BACKENDS = ("ring", "jaccl", "jaccl-ring")
"""MLX's backends that can join ranks here; the last two, for Macs with Thunderbolt, could not be tried."""
LAUNCHER = "from mlx._distributed_utils.launch import main; main()"
PEER_GONE = 3
"""Exit status of a rank that failed because another rank is gone."""
LAST_WORDS = 400
"""Largest number of characters of the last line that a process wrote."""


class RankHost(Struct, frozen=True):
    """The host of one rank."""

    ssh: str
    """Name of its machine for `ssh`; 127.0.0.1 for this one."""
    ips: tuple[str, ...]
    """Addresses at which the other ranks reach it."""
    rdma: tuple[Any, ...] = ()
    """Names of its devices for each rank, for jaccl."""

    @property
    def local(self) -> bool:
        """True if it is this machine."""
        return self.ssh == LOOPBACK


class RankHosts(Struct, frozen=True):
    """The hosts of the ranks, in order, and how the ranks are joined."""

    ranks: tuple[RankHost, ...]
    backend: str = "ring"
    envs: tuple[str, ...] = ()
    """Environment variables of each rank, as NAME=VALUE."""

    def command(self, folder: Path, call: str) -> list[str]:
        """The command that starts the ranks through mlx.launch.

        Args:
            folder: Folder to write the hostfile to.
            call: Statements that each rank executes, on one line.

        Raises:
            LoadError: There are no ports at which the ranks can meet.
        """
        hosts = [{"ssh": host.ssh, "ips": host.ips, "rdma": host.rdma} for host in self.ranks]
        file = folder / "hosts.json"
        file.write_text(json.dumps({"hosts": hosts, "backend": self.backend, "envs": self.envs}))
        launch = [*python_command(LAUNCHER), "--hostfile", str(file), "--starting-port", str(self._port())]
        return [*launch, "--", *python_command(call)]

    def _port(self) -> int:
        """The first of as many free ports in a row as the ranks have addresses.

        Raises:
            LoadError: There is no such port, or it is taken.
        """
        addresses = [(host, ip) for host in self.ranks for ip in host.ips]
        text = os.environ.get(PORT_VARIABLE, "")
        if not text and all(host.local for host in self.ranks):
            return _free_port(len(addresses))
        first = int(text) if text.isascii() and text.isdigit() else 0 if text else FIRST_PORT
        most = 65536 - len(addresses)
        if not 1 <= first <= most:
            raise LoadError(
                f"{PORT_VARIABLE} must be a port from 1 to {most}, not {text}.", "Give another one."
            )
        for port, (host, ip) in enumerate(addresses, first):
            if host.local:
                _check_free(ip, port)
        return first

    def ending(self, text: str, status: int | None) -> str:
        """A sentence that says why the ranks have ended.

        Args:
            text: What mlx.launch and the ranks wrote to stderr.
            status: Exit status of mlx.launch; None if it has not ended.
        """
        ends = [(int(rank), int(status)) for rank, status in _END.findall(text)]
        # a rank that mlx.launch ended has got SIGTERM; one that failed because another was gone has PEER_GONE
        causes = [end for end in ends if end[1] not in (-signal.SIGTERM, PEER_GONE)] or ends
        if not causes:
            return process_ending(text, status)
        rank, status = min(causes, key=lambda end: end[1] >= 0)  # a signal, or else the first
        if status == -signal.SIGALRM:  # rank 0 waited; a stopped process can't be ended by SIGTERM
            others = range(1, len(self.ranks))
            silent = [other for other in others if other not in dict(ends)] or list(others)
            name = self._name(silent[0]) if len(silent) == 1 else "A rank"
            return f"{name} was lost: it gave no answer in its time."
        if rank == 0:
            return process_ending(text, status)
        words = last_words(text, rank)
        return f"{self._name(rank)} was lost: it {ending_of(status)}." + f" Its last words: {words}." * bool(
            words
        )

    def _name(self, rank: int) -> str:
        host = self.ranks[rank].ssh
        return f"Rank {rank}" + f" on {host}" * (host != LOOPBACK)


_END = re.compile(r"Node with rank (\d+) exited with code (-?\d+)")
_NOISE = re.compile(r"\[ring\]|\[WARN\]|\[ERROR\]")
"""Marks of the lines that MLX and mlx.launch write when a rank is gone: an effect, not the cause."""


def process_ending(text: str, status: int | None) -> str:
    """A sentence about the end of the engine's process, with its last words, or else with its signal or status."""
    said = last_words(text) or (f"it {ending_of(status)}" if status else "")
    return f"The engine's process has ended{said and ': '}{said}."


def last_words(text: str, rank: int = 0) -> str:
    """The last line of stderr that says something about a rank, shortened; empty if there is none."""
    lines = [line.strip() for line in text.splitlines()]
    own = [line.removeprefix(f"rank {rank}: ") for line in lines if line.startswith(f"rank {rank}: ")]
    said = own or [line for line in lines if line and not re.match(r"rank \d+: ", line)]
    return next((line for line in reversed(said) if not _NOISE.search(line)), "")[-LAST_WORDS:].rstrip(".")


def hosts_of(settings: LoadSettings) -> RankHosts:
    """The hosts of the ranks that load settings ask for.

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
        # ssh would take a name with a leading hyphen for an option
        raise ValueError(f"host {place} has no ssh that is a name")
    ssh = LOOPBACK if ssh in ("localhost", "::1") else ssh
    ips, rdma = entry.get("ips"), entry.get("rdma") or []
    if ips is None and ssh == LOOPBACK:
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


def _free_port(count: int) -> int:
    """The first of `count` ports in a row that are free at this moment."""
    while True:
        with ExitStack() as held, suppress(OSError, OverflowError):
            first: int = held.enter_context(socket.create_server((LOOPBACK, 0))).getsockname()[1]
            for port in range(first + 1, first + count):
                held.enter_context(socket.create_server((LOOPBACK, port)))
            return first


def _check_free(ip: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    try:
        socket.create_server((ip, port), family=family).close()
    except OSError as error:
        raise LoadError(
            f"Ranks can't meet at {ip}, port {port} ({error.strerror}).",
            f"End the program that uses the port, or set {PORT_VARIABLE} to another first port.",
        ) from error
