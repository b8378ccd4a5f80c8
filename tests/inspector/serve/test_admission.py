"""Tokens are used up, and a request calls us by a name that is ours and comes from our own page."""

from __future__ import annotations

import pytest

from inspector.serve.door import AdmissionError, Admissions, check_host, check_origin


def test_a_token_admits_once_and_its_cookie_stays() -> None:
    admissions = Admissions()
    token = admissions.issue()
    cookie = admissions.admit(token)
    assert admissions.knows(cookie)
    assert not admissions.knows(token)
    with pytest.raises(AdmissionError, match="used already"):
        admissions.admit(token)
    assert admissions.knows(cookie)


def test_a_token_for_a_class_is_not_used_up() -> None:
    admissions = Admissions()
    token = admissions.issue(lasting=True)
    assert len({admissions.admit(token) for _ in range(100)}) == 100


@pytest.mark.parametrize("cookie", ["", ".", "a.", "a.b", "é.é", "\udce9.\udce9", "." * 5000])
def test_a_cookie_that_was_made_elsewhere_is_none(cookie: str) -> None:
    ours, theirs = Admissions(), Admissions()
    assert not ours.knows(cookie)
    assert not ours.knows(theirs.admit(theirs.issue()))


@pytest.mark.parametrize("token", ["", "x" * 22, "é", "../", "None"])
def test_what_is_no_token_admits_nobody(token: str) -> None:
    admissions = Admissions()
    admissions.issue()
    with pytest.raises(AdmissionError):
        admissions.admit(token)
    assert not admissions.knows("")


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1:8000", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("localhost:9000", "127.0.0.1"),  # a tunnel has a port of its own
        ("LOCALHOST:9000", "::1"),
        ("[::1]:8000", "::1"),
        ("127.0.0.1:8000", "::ffff:127.0.0.1"),
        ("192.168.1.5:8000", "192.168.1.5"),
        ("class.local:8000", "192.168.1.5"),
    ],
)
def test_our_own_names(host: str, local: str) -> None:
    check_host(host, local, {"class.local"})


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("evil.example", "127.0.0.1"),
        ("evil.example:8000", "127.0.0.1"),
        ("127.0.0.1.evil.example:8000", "127.0.0.1"),
        ("localhost.evil.example", "127.0.0.1"),
        ("localhost:8000", "192.168.1.5"),
        ("192.168.1.6:8000", "192.168.1.5"),
        ("127.0.0.1:8000", "192.168.1.5"),
        ("127.0.0.1:8000:8000", "127.0.0.1"),
        ("127.0.0.1:8000, evil.example", "127.0.0.1"),
        ("127.0.0.1@evil.example", "127.0.0.1"),
        ("", "127.0.0.1"),
        ("127.0.0.1:8000", ""),
        ("2130706433:8000", "127.0.0.1"),
    ],
)
def test_names_that_are_not_ours(host: str, local: str) -> None:
    with pytest.raises(AdmissionError, match="doesn't go by"):
        check_host(host, local, {"class.local"})


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1:8000", "https://127.0.0.1:8000", "HTTP://127.0.0.1:8000"]
)
def test_our_own_page(origin: str) -> None:
    check_origin(origin, "127.0.0.1:8000")


@pytest.mark.parametrize(
    "origin",
    [
        "", "null", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:8001", "http://localhost:8000",
        "file://127.0.0.1:8000", "http://127.0.0.1:8000.evil.example", "http://evil.example/http://127.0.0.1:8000",
        "http://user@127.0.0.1:8000", "http://[", "chrome-extension://127.0.0.1:8000",
    ],
)  # fmt: skip
def test_pages_that_are_not_ours(origin: str) -> None:
    with pytest.raises(AdmissionError, match="another site"):
        check_origin(origin, "127.0.0.1:8000")
