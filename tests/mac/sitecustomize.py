"""Limits of macOS, emulated on Linux in every Python process that has this directory in PYTHONPATH.

`PYTHONPATH=tests/mac python -m pytest`: no /proc and no epoll, RLIMIT_AS refused, `ru_maxrss` in bytes, the long TMPDIR
that each user has there, and 256 colours, as Terminal has. Who asks for `sys.platform` is told `darwin`, and who asks
for the C library, none that is known. `platform.system()` stays Linux, because libraries that ask it load what only a
Mac has (truststore does). Programs that only a Mac has are missing.
"""

from __future__ import annotations

import os
import sys


def _apply() -> None:
    import builtins
    import io
    import resource
    import select
    import shutil  # with the copying that this system has
    import tempfile
    import types

    del shutil
    multiarch = getattr(sys.implementation, "_multiarch", "")
    # sysconfig reads what the Python that runs was built with from a module that is named after the system
    os.environ["_PYTHON_SYSCONFIGDATA_NAME"] = f"_sysconfigdata_{sys.abiflags}_{sys.platform}_{multiarch}"
    sys.platform = "darwin"
    import platform

    platform.libc_ver = lambda *_, **__: ("", "")
    proxies = types.ModuleType("_scproxy")  # which asks the system for its proxies
    proxies._get_proxy_settings = proxies._get_proxies = dict
    sys.modules["_scproxy"] = proxies
    for name in ("epoll", "EPOLLIN"):
        if hasattr(select, name):
            delattr(select, name)
    long = f"/tmp/{'folders-of-a-user-on-a-mac'}/qx/0123456789abcdefghijklmnopqrstuv/T"
    os.makedirs(long, exist_ok=True)
    if os.environ.get("TMPDIR") != long:  # the first process: a test may give its programs another terminal
        os.environ.pop("COLORTERM", None)
        os.environ["TERM"] = "xterm-256color"
    os.environ["TMPDIR"] = tempfile.tempdir = long

    def hidden(path: object) -> bool:
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        return name == "/proc" or name.startswith("/proc/")

    def without_proc(own):
        def call(path, *args, **named):
            if hidden(path):
                raise FileNotFoundError(2, "No such file or directory", os.fsdecode(path))
            return own(path, *args, **named)

        return call

    for name in ("open", "stat", "lstat", "listdir", "readlink", "scandir", "access"):
        setattr(os, name, without_proc(getattr(os, name)))
    io.open = builtins.open = without_proc(builtins.open)

    limit, usage = resource.setrlimit, resource.getrusage

    def setrlimit(which, limits):
        if which == resource.RLIMIT_AS:
            raise ValueError("current limit exceeds maximum limit")
        limit(which, limits)

    def getrusage(who):
        found = list(usage(who))
        found[2] *= 1024
        return resource.struct_rusage(found)

    resource.setrlimit, resource.getrusage = setrlimit, getrusage


_apply()
