"""An engine in another process or on another machine, reached through a socket.

The two ends send lines, each one JSON object in ASCII that ends with a line feed:

    client  {"hello": 1, "token": "...", "wire": 1, "program": "...", "engine": "", "client": 0, "from": "session"}
    engine  {"welcome": 1, "engine": "5f...", "client": 1, "number": 12, "next": 40, "outstanding": [], "model": true}
    client  commands as `engine.wire` has them, and {"ping": 1}
    engine  records as `engine.wire` has them, {"pong": 1}, and before it closes {"bye": "why"}

or, in the place of the welcome, {"refused": "why", "final": true}: trying again is no use where it is final.

**Records are numbered.** The engine keeps them in a journal, which begins anew with each model; `number` is that of the
first line after the welcome, and all others follow from it. A client that comes back names the number that it expects
next, and gets what it missed. One that joins (`"from": "session"`) gets the whole session of the present model; one
that begins its own (`"from": "end"`) gets what comes next. Among the records the journal has the commands `Load`,
`Prefill` and `Configure` that were carried out: who joins learns from them what no record holds.

**Commands keep their ids.** Those of the client `n` are n * 2**40 and more, so that what one client asked for is never
taken for an answer to another.

**When a connection ends** the engine cancels what escape on the screen would cancel, and continues with what is short.
Its session stays for whoever comes next.

Standard library alone; `engine.thread` imports MLX once it is started, in the process of the server.
"""

PROTOCOL = 1
"""Version of the handshake; messages have their own in `engine.wire`."""
HELLO_LIMIT = 4096
"""Bytes of a line before the token is known to be right."""
HELLO_SECONDS = 5.0
"""Seconds from the connection to the end of the first line, at most."""
PING_SECONDS = 5.0
"""A client sends a line at least so often."""
SILENCE_SECONDS = 30.0
"""Without anything from the other end for so long, or without any progress in sending, a connection counts as lost."""
CLIENT_IDS = 2**40
"""Ids that each client has for its commands."""
