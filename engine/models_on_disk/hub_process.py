"""Downloads a model from a hub into the hub's cache: a script, run by `download` in a process of its own.

huggingface_hub's downloader begins a file from nothing after it was stopped, since its version 2. Here what came of a
file stays as `blobs/HASH.incomplete` and is continued; the cache is laid out as huggingface_hub lays it out, so that
it finds the model. Each file is held against the size and the hash that the hub's list states. Standard library alone,
and the certificates of certifi where it is installed.

It reads one JSON object from standard input, writes a line of JSON for each change to standard output, and ends with
its standard input: whoever started it can't leave it behind.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

BLOCK = 2**18
TIMEOUT = 20.0
"""Seconds without a byte after which a connection counts as cut."""
ATTEMPTS = 5
"""Connections for a file without a byte more."""
PAUSE = 1.0
"""Seconds before another attempt."""
REPORT_SECONDS = 0.2
MOST_FILES, LONGEST_LIST = 10_000, 64 * 2**20
"""Files of a repository, and bytes of their list."""
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Refused(Exception):
    """The download can't go on.

    Args:
        kind: For whoever started it: `login`, `none`, `network`, `wrong`, `disk` or `busy`.
        message: What is wrong, without a full stop.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class HubFile:
    """A file of the hub's list."""

    name: str
    size: int
    hash: str
    """SHA-256 of a large file, else the SHA-1 by which git names it: the name of its blob."""


def tell(**values: Any) -> None:
    """Write a line for whoever started this."""
    _OUT.write(json.dumps(values) + "\n")
    _OUT.flush()


# ---- the hub ----------------------------------------------------------------------------------


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to other hosts without the token, and never from https to http."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if after.scheme != before.scheme and after.scheme != "https":
            raise Refused("wrong", f"the hub leads from {before.scheme} to {after.scheme or 'nowhere'}")
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and after.netloc == before.netloc and "Authorization" in req.unredirected_hdrs:
            made.add_unredirected_header("Authorization", req.unredirected_hdrs["Authorization"])
        return made


class Hub:
    """A hub that is asked by HTTP.

    Args:
        endpoint: Its address.
        token: Of the person; empty for none. It goes to the endpoint's own host alone.
    """

    def __init__(self, endpoint: str, token: str) -> None:
        self._endpoint, self._token = endpoint.rstrip("/"), token
        self._opener = urllib.request.build_opener(
            Redirects, urllib.request.HTTPSHandler(context=_certificates())
        )

    def open(self, path: str, begin: int = 0) -> http.client.HTTPResponse:
        """Ask for a path of the endpoint, from a byte on.

        Raises:
            Refused: The hub has it not, or not for this person.
            OSError: The connection failed.
        """
        request = urllib.request.Request(self._endpoint + path, headers={"User-Agent": "mlx-inspector"})
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        if begin:
            request.add_header("Range", f"bytes={begin}-")
        try:
            answer: http.client.HTTPResponse = self._opener.open(request, timeout=TIMEOUT)
        except urllib.error.HTTPError as error:
            self._refuse(error)
        return answer

    def _refuse(self, error: urllib.error.HTTPError) -> NoReturn:
        why = error.headers.get("X-Error-Code", "")
        if error.code == 403 or why == "GatedRepo" or (error.code == 401 and self._token and not why):
            raise Refused("login", f"status {error.code}") from error
        if error.code in (401, 404):
            raise Refused("none", f"status {error.code}") from error
        if error.code in (408, 416, 429) or error.code >= 500:
            raise OSError(f"the hub answered with status {error.code}") from error
        raise Refused("network", f"the hub answered with status {error.code}") from error

    def files(self, spec: str, revision: str) -> tuple[str, list[HubFile]]:
        """The commit of a revision, and the files of it.

        Raises:
            Refused: There is none, or the list is not one that can be kept.
            OSError: The connection failed.
        """
        with self.open(f"/api/models/{spec}/revision/{quote(revision, safe='')}?blobs=true") as answer:
            listed = answer.read(LONGEST_LIST + 1)
        try:
            known = json.loads(listed)
            commit, siblings = known["sha"], known["siblings"][: MOST_FILES + 1]
            found = [_file(each) for each in siblings]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise Refused("wrong", "the hub's list of its files can't be used") from error
        if len(found) > MOST_FILES or not _HASH.fullmatch(str(commit)):
            raise Refused("wrong", "the hub's list of its files can't be used")
        return commit, found


def _file(listed: dict[str, Any]) -> HubFile:
    large = listed.get("lfs") or {}
    name, size, digest = listed["rfilename"], listed["size"], large.get("sha256") or listed["blobId"]
    if not isinstance(name, str) or not isinstance(size, int) or size < 0 or not _HASH.fullmatch(str(digest)):
        raise ValueError
    return HubFile(name, size, digest)


def _certificates() -> ssl.SSLContext:
    """Those of certifi, where it is installed: the system's are not found everywhere."""
    try:
        import certifi
    except ImportError:
        return ssl.create_default_context()
    return ssl.create_default_context(cafile=certifi.where())


# ---- the cache --------------------------------------------------------------------------------


class Download:
    """The files of one model, on their way into the cache.

    Args:
        hub: They come from.
        folder: Of the repository in the cache.
        commit: That they are of.
        files: Those that are wanted.
        spec: The model's id.
    """

    def __init__(self, hub: Hub, folder: Path, commit: str, files: list[HubFile], spec: str) -> None:
        self._hub, self._folder, self._spec, self._commit, self._files = hub, folder, spec, commit, files
        self._whole, self._reported = 0, 0.0
        self._total = sum(file.size for file in files)

    def run(self) -> Path:
        """Fetch what is missing; returns the snapshot's directory.

        Raises:
            Refused: A file has another size or hash than stated, or is being downloaded by another program.
            OSError: The connection failed again and again, or the disk is full.
        """
        blobs, snapshot = self._folder / "blobs", self._folder / "snapshots" / self._commit
        for made in (blobs, snapshot, self._folder / "refs"):
            made.mkdir(parents=True, exist_ok=True)
        left = sum(file.size - self._held(blobs / file.hash) for file in self._files)
        free = shutil.disk_usage(blobs).free
        if left > free:
            raise Refused("disk", f"{left:,} bytes are to come, and the disk has {free:,}")
        for file in self._files:
            if not (blobs / file.hash).is_file():
                self._fetch(file, blobs / f"{file.hash}.incomplete", blobs / file.hash)
            self._whole += file.size
            _point(snapshot / file.name, blobs / file.hash)
        self._tell(0, force=True)
        (self._folder / "refs" / "main").write_text(self._commit)
        return snapshot

    def _held(self, blob: Path) -> int:
        for path in (blob, blob.with_name(f"{blob.name}.incomplete")):
            if path.is_file():
                return path.stat().st_size
        return 0

    def _fetch(self, file: HubFile, part: Path, blob: Path) -> None:
        """Have one file come, continuing with what there is of it."""
        with open(part, "ab+") as out:
            try:
                fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise Refused("busy", "another program is downloading it") from error
            attempts, before = 0, -1
            while (size := out.seek(0, os.SEEK_END)) < file.size:
                attempts = attempts + 1 if size == before else 1
                before = size
                try:
                    self._receive(file, out, size)
                except (OSError, http.client.HTTPException) as error:
                    if isinstance(error, OSError) and error.errno is not None and not _of_network(error):
                        raise
                    if attempts >= ATTEMPTS:
                        raise OSError(f"the connection failed {ATTEMPTS} times: {error}") from error
                    time.sleep(PAUSE)
            self._check(file, out, part)
            os.replace(part, blob)

    def _receive(self, file: HubFile, out: Any, begin: int) -> None:
        """Write what one connection brings.

        Raises:
            Refused: It brings more than the file has.
            OSError: It failed, or ended early.
        """
        name = quote(file.name, safe="/")
        try:
            opened = self._hub.open(f"/{self._spec}/resolve/{self._commit}/{name}", begin)
        except Refused as error:
            if error.kind != "none":
                raise
            raise Refused("wrong", f"the hub lists {file.name} but does not have it ({error})") from error
        with opened as answer:
            if begin and not _goes_on(answer, begin):  # a server that takes no ranges
                begin = 0
                out.truncate(0)
            size = begin
            while block := answer.read1(BLOCK):
                size += len(block)
                if size > file.size:
                    out.truncate(0)
                    raise Refused("wrong", f"{file.name} is larger than the hub states")
                out.write(block)
                out.flush()  # a killed process has lost nothing
                self._tell(size)
        if size < file.size:
            raise OSError("it ended early")

    def _check(self, file: HubFile, out: Any, part: Path) -> None:
        """Hold a file against its hash.

        Raises:
            Refused: It is another one; it is deleted.
        """
        out.seek(0)
        digest = hashlib.sha256() if len(file.hash) == 64 else hashlib.sha1(b"blob %d\0" % file.size)
        while block := out.read(BLOCK * 4):
            digest.update(block)
        if digest.hexdigest() != file.hash:
            part.unlink()
            raise Refused("wrong", f"{file.name} has another hash than the hub states")

    def _tell(self, size: int, force: bool = False) -> None:
        """Tell how far it is, some times a second."""
        now = time.monotonic()
        if force or now - self._reported >= REPORT_SECONDS:
            self._reported = now
            tell(done=self._whole + size, total=self._total)


def _of_network(error: OSError) -> bool:
    return isinstance(error, urllib.error.URLError | ConnectionError | TimeoutError | ssl.SSLError)


def _goes_on(answer: http.client.HTTPResponse, begin: int) -> bool:
    return answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {begin}-")


def _point(link: Path, blob: Path) -> None:
    """Have a name of the snapshot lead to its blob."""
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink() or link.exists():
        link.unlink()
    try:
        link.symlink_to(os.path.relpath(blob, link.parent))
    except OSError:  # a file system without links
        shutil.copyfile(blob, link)


def kept(name: str) -> bool:
    """True if a name stays within the snapshot, and is one that a person could have given."""
    parts = PurePosixPath(name).parts
    return (
        bool(parts)
        and not name.startswith("/")
        and ".." not in parts
        and "\\" not in name
        and name.isprintable()
    )


# ---- the process ------------------------------------------------------------------------------


def download(given: dict[str, Any]) -> Path:
    """Do what is asked for.

    Raises:
        Refused: It can't be done.
        OSError: The network or the disk failed.
    """
    hub, spec = Hub(given["endpoint"], given["token"]), given["spec"]
    commit, listed = _tried(lambda: hub.files(spec, "main"))
    files = [file for file in listed if any(fnmatch(file.name, each) for each in given["patterns"])]
    for file in files:
        if not kept(file.name):
            raise Refused("wrong", f"a file has the name {ascii(file.name)[:80]}")
    if not any(file.name.endswith(".safetensors") for file in files):
        raise Refused("wrong", "it has no weights in safetensors files")
    folder = Path(given["cache"]) / f"models--{spec.replace('/', '--')}"
    return Download(hub, folder, commit, files, spec).run()


def _tried(ask: Callable[[], tuple[str, list[HubFile]]]) -> tuple[str, list[HubFile]]:
    try:
        return ask()
    except http.client.HTTPException as error:
        raise OSError(f"the hub's answer can't be read: {error!r}") from error


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(1)


def main() -> None:
    """Read what is asked for, do it, and tell how it ended."""
    given = json.loads(sys.stdin.buffer.readline())
    sys.path[:] = given["path"]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        tell(path=str(download(given)))
    except Refused as error:
        tell(error=error.kind, message=str(error))
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        reason = getattr(reason, "strerror", None) or reason
        tell(
            error="disk" if error.filename else "network",
            message=(str(reason).splitlines() or [""])[0][:160] or "no reason given",
        )
    except Exception as error:  # whatever a hub may answer, it is no fault of the network
        tell(error="wrong", message=f"the hub's answer can't be read ({type(error).__name__}: {error})"[:160])
    os._exit(0)  # the thread waits for standard input


if __name__ == "__main__":
    _OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else is written there
    main()
