"""The server with a small program on its terminals: who is refused, what a visitor can do, and what is left behind."""

from __future__ import annotations

import asyncio
import socket

import pytest

aiohttp = pytest.importorskip("aiohttp")
pytest.importorskip("textual_serve")

from inspector.serve.home import Home, as_host  # noqa: E402
from inspector.serve.server import ASSETS, LIBRARY_ASSETS, Limits  # noqa: E402
from tests.inspector.serve.served import alive, eventually, serving  # noqa: E402

PATHS = ("/", "/ws", *ASSETS, *LIBRARY_ASSETS)
STUBBORN = "import signal, time, os; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.write(1, b'up'); time.sleep(600)"
FLOOD = "import os, tty; tty.setraw(0)\nwhile True: os.write(1, b'x' * 65536)"
GREEDY = "import os, time; held = bytearray(os.urandom(2**20) * 64); os.write(1, b'up'); time.sleep(600)"


# ---- who is refused -------------------------------------------------------------------------


async def test_without_a_token_nothing_is_served() -> None:
    async with serving() as place:
        for path in PATHS:
            status, text = await place.get(path, Origin=place.root)
            assert (status, "Open the address that the server printed" in text) == (403, True), path
        assert (await place.get("/?token=wrong"))[0] == 403
        assert (await place.get("/", Cookie=f"inspector-{place.server.port}=wrong"))[0] == 403
        assert not place.server.sessions


async def test_a_token_works_once_and_its_cookie_from_then_on() -> None:
    async with serving() as place:
        path = f"/?token={place.server.admissions.issue()}"
        async with place.client.get(place.root + path) as response:
            assert response.status == 200
            cookie = response.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        status, text = await place.get(path)
        assert (status, "used already" in text) == (403, True)
        for own in sorted({*PATHS} - {"/ws"}):
            async with place.client.get(
                place.root + own, headers={"Cookie": cookie.partition(";")[0]}
            ) as response:
                assert response.status == 200, own


@pytest.mark.parametrize("path", ["/", "/page.js", "/ws"])
async def test_a_foreign_host_and_a_foreign_origin_are_refused_whoever_asks(path: str) -> None:
    async with serving() as place:
        admitted = await place.admit()
        own = {"Origin": place.root, **admitted}
        for host in ("evil.example", f"evil.example:{place.server.port}", "localhost.evil.example"):
            status, text = await place.get(path, **{**own, "Host": host, "Origin": f"http://{host}"})
            assert (status, "doesn't answer under the host name" in text) == (403, True)
        for origin in ("http://evil.example", "null", f"http://localhost:{place.server.port}"):
            status, text = await place.get(path, **{**own, "Origin": origin})
            assert (status, "another site" in text) == (403, True)


async def test_a_foreign_host_does_not_use_a_token_up() -> None:
    async with serving() as place:
        path = f"/?token={place.server.admissions.issue()}"
        assert (await place.get(path, Host="evil.example"))[0] == 403
        assert (await place.get(path, Origin="http://evil.example"))[0] == 403
        assert (await place.get(path))[0] == 200


@pytest.mark.parametrize("lacks", ["Origin", "Cookie"])
async def test_a_websocket_without_origin_or_cookie_is_refused(lacks: str) -> None:
    async with serving() as place:
        headers = {"Origin": place.root, **(await place.admit())}
        del headers[lacks]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await place.client.ws_connect(f"{place.root}/ws", headers=headers)
        assert refused.value.status == 403
        assert not place.server.sessions


async def test_other_methods_and_paths_are_refused() -> None:
    async with serving() as place:
        admitted = await place.admit()
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
            async with place.client.request(method, f"{place.root}/", headers=admitted) as response:
                assert response.status == 405
        for path in ("/static/", "/download/x", "/../server.py", "/page/page.html", "/%2e%2e/server.py"):
            assert (await place.get(path, **admitted))[0] == 404, path


async def test_every_answer_forbids_the_rest_of_the_world() -> None:
    async with serving() as place:
        for headers in ({}, await place.admit()):
            for path in ("/", "/page.js", "/nothing"):
                async with place.client.get(place.root + path, headers=headers) as response:
                    policy = response.headers["Content-Security-Policy"]
                    assert "default-src 'none'" in policy
                    assert "http:" not in policy.replace(f"ws://127.0.0.1:{place.server.port}", "")
                    assert response.headers["Referrer-Policy"] == "no-referrer"
                    assert response.headers["X-Frame-Options"] == "DENY"


async def test_a_visitor_beyond_the_seats_reads_why_and_keeps_the_token() -> None:
    async with serving(limits=Limits(sessions=64)) as place:
        visitors = [await place.visit() for _ in range(64)]
        path = f"/?token={place.server.admissions.issue()}"
        status, text = await place.get(path)
        assert (status, "All 64 seats are taken" in text, "somebody has left" in text) == (503, True, True)
        await visitors[3].until(r"\]")
        await visitors[3].socket.close()
        await eventually(lambda: len(place.server.sessions) == 63)
        assert (await place.get(path))[0] == 200


async def test_a_visitor_has_one_seat_and_comes_back_into_it() -> None:
    async with serving(limits=Limits(sessions=2)) as place:
        admitted, other = await place.admit(), await place.visit()
        await other.until("x30")
        first = await place.visit(admitted)
        await first.until("x30")
        for _ in range(5):
            ends = asyncio.create_task(first.end())
            again = await place.visit(admitted)
            assert (await ends)[1] == "You opened it again elsewhere: a visitor has one seat."
            await again.until("x30")
            assert len(place.server.sessions) == 2
            first = again
        assert (await place.get("/", **admitted))[0] == 200  # all seats are taken, and one is theirs
        status, text = await place.get(f"/?token={place.server.admissions.issue()}")
        assert (status, "All 2 seats are taken" in text) == (503, True)
        await other.send("stdin", "still")
        await other.until("still")


async def test_who_asks_for_a_seat_many_times_at_once_gets_one() -> None:
    async with serving(limits=Limits(sessions=3)) as place:
        admitted = await place.admit()
        visits = await asyncio.gather(*(place.visit(admitted) for _ in range(5)), return_exceptions=True)
        assert len(place.server._seats) == 1
        await eventually(lambda: len(place.server.sessions) == 1 and len(place.server._seats) == 1)
        here = [each for each in visits if not isinstance(each, BaseException) and not each.socket.closed]
        await here[-1].until("x30")
        assert (await place.get(f"/?token={place.server.admissions.issue()}"))[0] == 200


async def test_fetches_of_a_class_address_take_no_seat() -> None:
    async with serving(limits=Limits(sessions=5)) as place:
        path = f"/?token={place.server.admissions.issue(lasting=True)}"
        for _ in range(6):
            assert (await place.get(path))[0] == 200
            assert (await place.get("/"))[0] == 403
        visitors = []
        for _ in range(5):
            async with place.client.get(place.root + path) as response:
                visitors.append(
                    await place.visit({"Cookie": response.headers["Set-Cookie"].partition(";")[0]})
                )
        for visitor in visitors:
            await visitor.until("x30")
        assert (await place.get(path))[0] == 503


async def test_a_visitor_comes_back_to_a_place_of_their_own() -> None:
    asked: list[int] = []

    def home(number: int) -> Home:
        asked.append(number)
        return Home({**as_host(number).environment, "NUMBER": str(number)})

    script = "import os, time; os.write(1, f'[number {os.environ[\"NUMBER\"]}]'.encode()); time.sleep(600)"
    async with serving(script, home=home) as place:
        admitted = await place.admit()
        for visitor, number in ((admitted, 1), (await place.admit(), 2), (admitted, 1)):
            await (await place.visit(visitor)).until(rf"number {number}\]")
    assert asked == [1, 2]


# ---- what a visitor does ----------------------------------------------------------------------


async def test_keys_sizes_and_the_end_of_the_program() -> None:
    async with serving() as place:
        visitor = await place.visit()
        await visitor.until(r"\[90x30\]")
        await visitor.send("stdin", "héllo")
        await visitor.until("héllo")
        await visitor.send("resize", {"width": 101, "height": 33})
        await visitor.until(r"\[101x33\]")
        await visitor.send("stdin", "q")
        _, reason = await visitor.end()
        assert "[left]" in visitor.seen
        assert reason == "The program has ended."
        await eventually(lambda: not place.server.sessions)


async def test_a_visitor_who_leaves_takes_the_program_along() -> None:
    async with serving() as place:
        visitor = await place.visit()
        await visitor.until("x30")
        [pid] = [session.program.pid for session in place.server.sessions]
        await visitor.socket.close()
        await eventually(lambda: not place.server.sessions)
        assert not alive(pid)


async def test_a_program_that_does_not_leave_is_killed(monkeypatch) -> None:
    monkeypatch.setattr("inspector.serve.visit.END_SECONDS", 0.2)

    async with serving(STUBBORN) as place:
        visitor = await place.visit()
        await visitor.until("up")
        [pid] = [session.program.pid for session in place.server.sessions]
        await visitor.socket.close()
        await eventually(lambda: not alive(pid))


async def test_the_end_of_the_server_hangs_up_and_says_so() -> None:
    async with serving() as place:
        visitors = [await place.visit() for _ in range(3)]
        for visitor in visitors:
            await visitor.until("x30")
        pids = [session.program.pid for session in place.server.sessions]
        ended = asyncio.gather(*(visitor.end() for visitor in visitors))
        await place.server.close()
        assert {reason for _, reason in await ended} == {"The server was ended."}
        assert all("[saved]" in visitor.seen for visitor in visitors)
        assert not any(map(alive, pids))


@pytest.mark.wide(4)
@pytest.mark.parametrize(
    "message",
    ["", "{", "[]", "1", '"stdin"', '["stdin"]', '["stdin", 1]', '["resize", {"width": "x", "height": 2}]',
     '["resize", {"width": 1e999, "height": 2}]', '["resize", null]', "[" * 100_000, '["stdin", "a", "b"]'],
)  # fmt: skip
async def test_what_is_no_message_ends_that_session_alone(message: str) -> None:
    async with serving() as place:
        other, visitor = await place.visit(), await place.visit()
        await visitor.until("x30")
        await visitor.socket.send_str(message)
        _, reason = await visitor.end()
        assert reason == "The page sent something that is not a message."
        await other.send("stdin", "still")
        await other.until("still")


async def test_sizes_are_bounded_and_a_flood_of_them_is_few() -> None:
    async with serving() as place:
        visitor = await place.visit(size="width=999999&height=-5")
        await visitor.until(r"\[80x24\]")
        for width in range(2000):
            await visitor.send("resize", {"width": 40 + width % 100, "height": 10**9})
        await visitor.send("resize", {"width": 10**9, "height": 0})
        await visitor.until(r"\[500x1\]")
        assert visitor.seen.count("[") < 400


async def test_a_message_of_20_mb_ends_that_session_alone() -> None:
    async with serving() as place:
        other, visitor = await place.visit(), await place.visit()
        await visitor.until("x30")
        await other.until("x30")
        with pytest.raises((ConnectionError, AssertionError)):  # noqa: PT012
            await visitor.send("stdin", "x" * 20_000_000)
            while True:
                assert (await visitor.socket.receive()).type is aiohttp.WSMsgType.BINARY
        await other.send("stdin", "still")
        await other.until("still")
        await eventually(lambda: len(place.server.sessions) == 1)


async def test_a_paste_of_a_megabyte_arrives_whole() -> None:
    async with serving() as place:
        visitor = await place.visit()
        await visitor.until("x30")
        await visitor.send("stdin", "x" * 2**20)
        await visitor.until(rf"\[{2**20}\]")


async def test_more_than_a_program_takes_ends_that_session() -> None:
    async with serving("import time, tty, os; tty.setraw(0); os.write(1, b'up'); time.sleep(600)") as place:
        visitor = await place.visit()
        await visitor.until("up")
        for _ in range(6):
            await visitor.send("stdin", "x" * 2**20)
        _, reason = await visitor.end()
        assert reason == "More was typed than the program could take."


async def test_a_page_that_never_reads_holds_nobody_up_and_is_ended(monkeypatch) -> None:
    monkeypatch.setattr("inspector.serve.server.HEARTBEAT_SECONDS", 1.0)

    async with serving(FLOOD) as place:
        cookie = (await place.admit())["Cookie"]
        raw = socket.create_connection(("127.0.0.1", place.server.port))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.sendall(
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{place.server.port}\r\nOrigin: {place.root}\r\n"
            f"Cookie: {cookie}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        await eventually(lambda: len(place.server.sessions) == 1)
        assert (await place.get("/", Cookie=cookie))[0] == 200  # others are served meanwhile
        await eventually(lambda: not place.server.sessions)
        raw.close()


# ---- what all of them take --------------------------------------------------------------------


async def test_who_is_idle_is_ended_and_whoever_types_is_not() -> None:
    class Clock:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    clock = Clock()
    async with serving(limits=Limits(idle=600), clock=clock) as place:
        idle, typing = await place.visit(), await place.visit()
        await idle.until("x30")
        clock.now = 599
        await typing.send("stdin", "here")
        await typing.until("here")
        clock.now = 601
        place.server.look()
        _, reason = await idle.end()
        assert reason == "Nobody did anything for 10 minutes: load the page again."
        await eventually(lambda: len(place.server.sessions) == 1)


async def test_the_newest_goes_where_all_take_too_much_memory(monkeypatch) -> None:
    monkeypatch.setattr("inspector.serve.server.LOOK_SECONDS", 1e6)

    async with serving(GREEDY, limits=Limits(memory=2**27)) as place:
        admitted = await place.admit()
        first, newest = await place.visit(), await place.visit()
        await first.until("up")
        await newest.until("up")
        place.server.look()
        assert (await newest.end())[1] == "All sessions together exceeded the memory limit (--memory)."
        await eventually(lambda: len(place.server.sessions) == 1)
        place.server.look()
        assert 2**26 < place.server.resident < 2**27
        status, text = await place.get("/", **admitted)
        assert (status, "the server's memory limit" in text) == (503, True)
