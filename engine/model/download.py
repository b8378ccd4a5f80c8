"""Downloads of a model from a hub into the hub's cache, in a separate process that can be killed at any time.

The process downloads with huggingface_hub, and compares the files with the sizes and hashes listed by the hub. Complete
files are kept, and a later download continues with the missing ones. The loaded model is not touched, and nothing is
written to the terminal.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import resource
import select
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any, NoReturn
from urllib.parse import unquote

from msgspec import Struct

from engine.errors import Cancelled, LoadError, first_line
from engine.processes import python_command

PATTERNS = (
    "*.json", "model*.safetensors", "*.py", "tokenizer.model", "*.tiktoken", "tiktoken.model", "*.txt", "*.jsonl",
    "*.jinja",
)  # fmt: skip
"""The files that mlx_lm downloads (`DEFAULT_ALLOW_PATTERNS`; a test compares them)."""
RATE_SECONDS = 5.0
"""Seconds over which the rate is measured."""
REPORT_SECONDS = 0.2
TIMEOUT = 10.0
"""Timeout in seconds of each request to the hub. Opening a cached model while the hub doesn't answer takes as long."""
LONGEST_NAME = 255
"""Maximum length of a file's name in bytes."""
MEMORY = 2 * 2**30
"""Maximum address space of the process in bytes, in case a list of files never ends."""
MOST_FILES = 10_000
"""Maximum number of files in a repository."""
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_POLL = 0.1
_KEPT = "the files that arrived are kept."
_MESSAGES = {
    "busy": ("{spec} was not downloaded: another program is downloading it.", "Wait for that one."),
    "disk": ("{spec} can't be kept: {why}.", "Make room in the hub's cache, or set HF_HUB_CACHE to another place."),
    "ended": ("{spec} was not downloaded: the process that did it was ended.", f"Try again; {_KEPT}"),
    "id": ("{spec} is not a hub id.", "A hub id has the form owner/name."),
    "login": ("The hub asks for a login to read {spec}.", "Run `hf auth login`, then try again."),
    "network": ("{spec} can't be downloaded now: {why}.", f"Check the network; {_KEPT}"),
    "none": ("The hub has no model {spec}, or not for you.", "Check the name; `hf auth login` for a private one."),
    "wrong": ("{spec} was not downloaded: {why}.", "Try again, or choose another model."),
}  # fmt: skip


Files = Mapping[str, tuple[int, str]]
"""Size and hash of each file, by name; the hash is SHA-256 for large (LFS) files, otherwise git's SHA-1."""


class DownloadProgress(Struct, frozen=True):
    """The progress of a download."""

    done: int
    """Bytes on the disk, including those from an earlier download."""
    total: int
    rate: float | None = None
    """Recent bytes per second; None if not known yet."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds left at that rate; None if unknown."""
        return (self.total - self.done) / self.rate if self.rate else None


def hub_cache() -> Path:
    """Directory of the hub's cache, determined in the same way as by huggingface_hub."""
    environ = os.environ
    if place := environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(os.path.expanduser(place))
    above = os.path.expanduser(environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(os.path.expanduser(environ.get("HF_HOME") or f"{above}/huggingface"), "hub")


def _folder(spec: str) -> Path:
    return hub_cache() / f"models--{spec.replace('/', '--')}"


def cached(spec: str) -> Path | None:
    """The latest snapshot of a model in the hub's cache, complete or not; None if there is none."""
    with suppress(OSError, ValueError):
        snapshot = _folder(spec) / "snapshots" / (_folder(spec) / "refs" / "main").read_text().strip()
        return snapshot if snapshot.is_dir() else None
    return None


def download(
    spec: str,
    tell: Callable[[DownloadProgress], None],
    stopped: Callable[[], bool],
    weights: bool = True,
) -> Path:
    """Download the missing files of a model.

    Args:
        spec: Hub id of the model.
        tell: Receives the progress.
        stopped: Polled ten times a second; returns True to stop. Complete files are kept.
        weights: True to download the weights, too.

    Returns:
        The directory of the complete model.

    Raises:
        LoadError: The model can't be downloaded.
        Cancelled: `stopped` returned True.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise LoadError(f"{spec} can't be downloaded: HF_HUB_OFFLINE is set.", "Unset it to download.")
    folder = _folder(spec)
    last: dict[str, Any] = {"error": "busy"}
    if not _discard_parts(folder):
        try:
            last = _last_written(f"{spec!r}, {weights}", tell, stopped)
        finally:
            _discard_parts(folder)
    if "path" in last:
        return Path(last["path"])
    message, hint = _MESSAGES[last.get("error", "ended")]
    raise LoadError(message.format(spec=spec, why=last.get("message", "").rstrip(".")), hint)


def _last_written(
    given: str, tell: Callable[[DownloadProgress], None], stopped: Callable[[], bool]
) -> dict[str, Any]:
    """Run the process, and return the last JSON object that it writes, other than progress."""
    # Xet would store files under hashes from another list, which isn't checked
    own = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0"}
    environment = {**os.environ, **own, "HF_HUB_CACHE": str(hub_cache())}
    call = f"from engine.model.download import fetch; fetch({given})"
    try:
        # in a new session, so that Ctrl-C in the terminal reaches only this process
        pipes: dict[str, Any] = {"bufsize": 0, "stdin": PIPE, "stdout": PIPE, "stderr": DEVNULL}
        process = Popen(python_command(call), **pipes, env=environment, start_new_session=True)
    except OSError as error:
        raise LoadError(f"No process can be started: {error.strerror}.", "Close other programs.") from error
    assert process.stdout is not None
    last, rates = dict[str, Any](), list[tuple[float, int]]()
    with process:
        try:
            while not stopped():
                if not select.select([process.stdout], [], [], _POLL)[0]:
                    continue
                if not (line := process.stdout.readline()):
                    return last
                if "done" not in (each := json.loads(line)):
                    last = each
                    continue
                now, done = time.monotonic(), each["done"]
                rates = [one for one in (*rates, (now, done)) if now - one[0] <= RATE_SECONDS]
                begun, before = rates[0]
                rate = (done - before) / (now - begun) if now - begun >= 0.5 else None
                tell(DownloadProgress(done, each["total"], rate))
            raise Cancelled
        finally:
            process.kill()


def _discard_parts(folder: Path) -> bool:
    """Delete incomplete files of a repository, which huggingface_hub would download again from the beginning.

    Returns:
        True if another program is downloading one of them.
    """
    busy = False
    for part in folder.glob("blobs/*.incomplete"):
        lock = folder.parent / ".locks" / folder.name / f"{part.name.partition('.')[0]}.lock"
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            with open(lock, "ab") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink(missing_ok=True)
        except BlockingIOError:
            busy = True
        except OSError:  # the download reports any problem with the cache
            continue
    return busy


# ---- the process that downloads ---------------------------------------------------------------


def fetch(spec: str, weights: bool) -> None:
    """Download in this process, which ends when its standard input is closed, and so with its parent.

    Args:
        spec: A hub id; hub, cache and token follow from the environment.
        weights: True to download the weights, too.
    """
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    try:
        _tell(path=str(_fetched(spec, weights)))
    except Exception as error:
        _refuse(*_reason(error))
    os._exit(0)  # the thread is still reading standard input


def _tell(**values: Any) -> None:
    os.write(1, json.dumps(values).encode() + b"\n")


def _refuse(kind: str, why: str) -> NoReturn:
    """Report an error and end the process with all its threads.

    Args:
        kind: A key of `_MESSAGES`.
        why: The reason.
    """
    _tell(error=kind, message=why)
    os._exit(0)


def _fetched(spec: str, weights: bool) -> Path:
    """Download the missing files, and compare them with the hub's list; returns the directory of the model."""
    from huggingface_hub import constants, get_session, snapshot_download

    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    get_session().timeout = TIMEOUT
    constants.DOWNLOAD_CHUNK_SIZE = 2**16  # with the usual 10 MB there would be no progress for seconds
    patterns = [each for each in PATTERNS if weights or not each.endswith(".safetensors")]
    commit, files = _listed(spec, patterns)
    cache, folder = Path(constants.HF_HUB_CACHE), _folder(spec)
    snapshot = folder / "snapshots" / commit
    missing = {name: file for name, file in files.items() if not (snapshot / name).exists()}
    left = sum(size for size, _ in missing.values())
    cache.mkdir(parents=True, exist_ok=True)
    if left > (free := shutil.disk_usage(cache).free):
        _refuse("disk", f"{left:,} bytes are to come, and the disk has {free:,}")
    threading.Thread(target=_report, args=(snapshot, files), daemon=True).start()
    get_session().event_hooks["response"].append(partial(_check, commit, files))
    snapshot_download(spec, revision=commit, allow_patterns=patterns)
    for name, (size, digest) in missing.items():
        git = hashlib.sha1(b"blob %d\0" % size)
        with open(snapshot / name, "rb") as file:
            found = hashlib.file_digest(file, "sha256" if len(digest) == 64 else git.copy)
        if found.hexdigest() != digest:
            os.unlink(os.path.realpath(snapshot / name))
            _refuse("wrong", f"{name} has another hash than the hub states")
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    total = sum(size for size, _ in files.values())
    _tell(done=total, total=total)
    return snapshot


def _check(commit: str, files: Files, response: Any) -> None:
    """Refuse a file if its size differs from the list, or if its ETag, the name in the cache, differs from its hash."""
    name = unquote(response.request.url.path).partition(f"/resolve/{commit}/")[2]
    if response.request.method != "HEAD" or name not in files:
        return
    size, digest = files[name]
    headers = response.headers
    own = headers if response.status_code == 200 else {}  # a redirect's length and tag aren't the file's
    length = headers.get("X-Linked-Size") or own.get("Content-Length")
    tag = headers.get("X-Linked-Etag") or own.get("ETag")
    if length and length != str(size):
        _refuse("wrong", f"{name} has another size than the hub states")
    if tag and tag.strip('W/"') != digest:
        _refuse("wrong", f"{name} has another hash than the hub states")


def _report(snapshot: Path, files: Files) -> NoReturn:
    """Report the progress on the disk every `REPORT_SECONDS`, and refuse a file that is larger than any listed one."""
    sizes, told = [size for size, _ in files.values()], -1
    while True:
        with suppress(FileNotFoundError):  # an incomplete file was completed in the meantime
            whole = [(snapshot / name).stat().st_size for name in files if (snapshot / name).exists()]
            parts = [part.stat().st_size for part in snapshot.parents[1].glob("blobs/*.incomplete")]
            if max(parts, default=0) > max(sizes):
                _refuse("wrong", "a file is larger than the hub states")
            if (done := sum(whole) + sum(parts)) > told:
                _tell(done=(told := done), total=sum(sizes))
        time.sleep(REPORT_SECONDS)


def _listed(spec: str, patterns: Sequence[str]) -> tuple[str, Files]:
    """The latest commit of a model, and its files that match the patterns."""
    from huggingface_hub import HfApi

    info = HfApi().model_info(spec, files_metadata=True, timeout=TIMEOUT)
    wanted = (each for each in info.siblings if any(fnmatch(each.rfilename, name) for name in patterns))
    files = {each.rfilename: (each.size, each.lfs.sha256 if each.lfs else each.blob_id) for each in wanted}
    known = (type(size) is int and size >= 0 and _HASH.fullmatch(digest) for size, digest in files.values())
    if not all(known) or len(info.siblings) > MOST_FILES or not _HASH.fullmatch(info.sha):
        raise ValueError("its list of files is none that can be kept")
    for name in files:
        odd = not name.isprintable() or "\\" in name or len(name.encode()) > LONGEST_NAME
        if odd or {"", ".", ".."}.intersection(name.split("/")):
            _refuse("wrong", f"a file has the name {ascii(name)[:80]}")
    if not any(each.rfilename.endswith(".safetensors") for each in info.siblings):
        _refuse("wrong", "it has no weights in safetensors files")
    return info.sha, files


def _reason(error: BaseException) -> tuple[str, str]:
    """The key of the message for an error, and the reason in one line."""
    from huggingface_hub import errors

    if isinstance(error, errors.HFValidationError):
        return "id", str(error)
    while isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__  # the reason why the cache was used
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        if isinstance(error, errors.RemoteEntryNotFoundError):
            name = unquote(error.response.url.path).partition("/resolve/")[2].partition("/")[2]
            return "wrong", f"the hub lists {name} but does not have it (status {status})"
        missing = isinstance(error, errors.RepositoryNotFoundError)
        if isinstance(error, errors.GatedRepoError) or status == 403 or (status == 401 and not missing):
            return "login", f"status {status}"
        return "none" if missing or status == 404 else "network", f"the hub answered with status {status}"
    if isinstance(error, errors.HfHubHTTPError.__bases__):  # an OSError, or an error of the HTTP library
        return "disk" if getattr(error, "errno", None) else "network", first_line(error, 160)
    return "wrong", f"the hub's answer can't be read ({type(error).__name__}: {first_line(error, 100)})"
