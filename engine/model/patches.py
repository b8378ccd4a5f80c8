"""Attributes of modules and classes that are replaced for a while."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

Patch = tuple[Any, str, Any]
"""An owner, the name of its attribute, and the value to set."""
Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""Called in the place of a module's `__call__` with the original, the module, and its arguments."""

_OWN = object()
"""For an attribute that a class inherits: to restore it, the class's own is deleted."""


@contextmanager
def patched(*patches: Patch) -> Iterator[None]:
    """Set attributes; on leaving, even by an exception, they are restored in reverse order."""
    saved: list[Patch] = []
    try:
        for owner, name, value in patches:
            saved.append((owner, name, vars(owner).get(name, _OWN)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(saved):
            if value is _OWN:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def calls(modules: Collection[Any], wrapper: Wrapper, method: str = "__call__") -> list[Patch]:
    """Patches that wrap the calls of some modules.

    Python looks up a call on the class, so the classes are patched; other instances of them run as before, and so does
    a `super()` call within a wrapped one.

    Args:
        modules: The instances.
        wrapper: Runs in the place of their calls.
        method: Another method than the call.
    """
    wrapped = {id(module) for module in modules}
    running: set[int] = set()

    def patch(cls: type) -> Patch:
        original = getattr(cls, method)

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if id(module) not in wrapped or id(module) in running:
                return original(module, *args, **kwargs)
            running.add(id(module))
            try:
                return wrapper(original, module, args, kwargs)
            finally:
                running.discard(id(module))

        return cls, method, call

    return [patch(cls) for cls in {type(module) for module in modules}]
