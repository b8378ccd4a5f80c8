"""The parts of a far engine: the journal's numbers, addresses that are refused, and the token's file."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from engine.errors import PathError
from engine.remote import journal, link
from engine.remote.journal import RecordJournal
from engine.remote.link import Address, parsed

# ---- the journal ------------------------------------------------------------------------------


def filled(count: int, length: int = 10) -> RecordJournal:
    made = RecordJournal()
    with made.changed:
        for n in range(count):
            made.append(f"{n:0{length - 1}d}\n".encode())
    return made


def told(made: RecordJournal, number: int) -> list[int]:
    """The numbers of all lines from a number on."""
    found: list[int] = []
    with made.changed:
        while number < made.next:
            data, after = made.read(number)
            lines = data.splitlines()
            assert len(lines) == after - number
            found += map(int, lines)
            number = after
    return found


def test_lines_come_back_by_their_numbers_from_memory_and_from_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "MEMORY", 1000)
    monkeypatch.setattr(journal, "PORTION", 95)
    made = filled(500)
    assert made._parts[0]._file._rolled  # type: ignore[attr-defined]
    for number in (0, 1, 250, 499):
        assert told(made, number) == list(range(number, 500))
    with made.changed:
        made.append(b"x" * 1000 + b"\n")  # longer than a portion
        assert made.read(500) == (b"x" * 1000 + b"\n", 501)
    made.close()


def test_the_part_before_is_kept_and_none_before_it() -> None:
    made = filled(3)
    with made.changed:
        for n in (3, 4):
            made.begin()
            made.append(f"{n}\n".encode())
    assert (made.oldest, made.first, made.next) == (3, 4, 5)
    assert told(made, 3) == [3, 4]
    made.close()


# ---- addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address", "local"),
    [
        ("unix:/run/x/engine.sock", Address(path="/run/x/engine.sock"), True),
        ("127.0.0.1:7531", Address(host="127.0.0.1", port=7531), True),
        ("127.9.9.9:1", Address(host="127.9.9.9", port=1), True),
        ("[::1]:65535", Address(host="::1", port=65535), True),
        ("localhost:80", Address(host="localhost", port=80), True),
        ("0.0.0.0:80", Address(host="0.0.0.0", port=80), False),
        ("[::]:80", Address(host="::", port=80), False),
        ("192.0.2.1:80", Address(host="192.0.2.1", port=80), False),
        ("localhost.example.com:80", Address(host="localhost.example.com", port=80), False),
    ],
)
def test_addresses(text: str, address: Address, local: bool) -> None:
    assert parsed(text) == address
    assert address.local is local
    assert parsed(str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["", "7531", ":7531", "host:", "host:0", "host:65536", "host:x", "host:٣", "unix:", "unix:" + "x" * 101],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(PathError, match=r"is not an address|names no file|is longer than 100 bytes"):
        parsed(text)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for sockets, the current one: their paths are bounded."""
    (tmp_path / "own").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    return Path("own")


def test_a_socket_of_files_is_its_owners_and_a_stale_one_is_replaced(place: Path) -> None:
    address = parsed("unix:own/deep/er/s")
    listener = address.listen()
    assert os.stat(address.path).st_mode & 0o777 == 0o600
    assert os.stat("own/deep/er").st_mode & 0o777 == 0o700
    with pytest.raises(PathError, match=r"An engine listens at own/deep/er/s already"):
        address.listen()
    listener.close()  # as if its process had been killed
    address.listen().close()
    address.remove()
    address.remove()
    assert not os.path.exists(address.path)


def test_no_socket_is_put_where_others_can_reach_it_or_over_a_file(place: Path) -> None:
    place.chmod(0o755)
    with pytest.raises(PathError, match=r"Others can reach the directory own\. chmod 700 own"):
        parsed("unix:own/s").listen()
    place.chmod(0o700)
    (place / "s").write_text("mine")
    with pytest.raises(PathError, match=r"own/s exists already and is not a socket"):
        parsed("unix:own/s").listen()
    assert (place / "s").read_text() == "mine"


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PathError, match=rf"can't listen at 127\.0\.0\.1:{port}: Address already in use"):
            parsed(f"127.0.0.1:{port}").listen()


# ---- the token --------------------------------------------------------------------------------


def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "token"
    made = link.made_or_read_token(file)
    assert len(made) > 40
    assert file.stat().st_mode & 0o777 == 0o600
    assert link.made_or_read_token(file) == link.read_token(file) == made
    assert link.made_or_read_token(tmp_path / "other") != made


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (b"secret", 0o644, "Others can read the token"),
        (b"secret", 0o640, "Others can read the token"),
        (b"", 0o600, "holds no token"),
        (b"\n", 0o600, "holds no token"),
        (b"x" * 300, 0o600, "holds no token"),
        (b"a\x1bb", 0o600, "holds no token"),
        (None, 0, "There is no token in"),
    ],
)
def test_what_is_no_token(tmp_path: Path, content: bytes | None, mode: int, words: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)
    with pytest.raises(PathError, match=words):
        link.read_token(file)
