"""Renders one chat template in a process of its own, within a limit of memory and of processor time: run as a script.

Its standard input is a JSON object: `path` (where modules are found), `template`, `values`, and the limits `bytes`,
`seconds` and `characters`. `others` are values in the place of some, with each of which it is filled, too.
Its standard output is one with `text` and `others`, or with `error`. The environment is that of
transformers' `chat_template_utils`, so that the text is the same (tests/engine/model/test_chat_template.py).
Importing transformers for it would take ten times as long as jinja2 does.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from typing import Any


def main() -> None:
    """Render the template of standard input."""
    given = json.load(sys.stdin)
    sys.path[:] = given["path"]
    import jinja2.exceptions  # before the limits: they are the template's

    from engine.processes import limit

    environment = _environment()
    limit(given["bytes"], given["seconds"])
    try:
        template = environment.from_string(given["template"])
        text = template.render(**given["values"])
        answer = json.dumps({"text": text, "others": _others(template, given, len(text))})
        if len(text) > given["characters"]:
            answer = _error(f"it makes {len(text)} characters of it")
    except MemoryError:
        answer = _error(f"it takes more than {given['bytes'] >> 20} MiB of memory")
    except jinja2.exceptions.TemplateSyntaxError as error:
        answer = _error(f"line {error.lineno}: {error.message}")
    except Exception as error:  # its author may make jinja2 raise anything
        answer = _error(str(error) or type(error).__name__)
    sys.stdout.write(answer)


def _others(template: Any, given: dict[str, Any], characters: int) -> list[str | None]:
    """The texts with other values, as many as take no more than half of what the limits leave."""
    begun = time.process_time()
    left = min(given["characters"], 2**22) // max(1, characters)
    texts: list[str | None] = []
    for number, others in enumerate(given["others"], 1):
        took = time.process_time() - begun
        if number > left or begun + took * (1 + 1 / number) > given["seconds"] / 2:
            texts.append(None)
            continue
        try:
            texts.append(template.render(**{**given["values"], **others}))
        except Exception:  # it takes notice of the marks
            texts.append(None)
    return texts


def _error(why: str) -> str:
    return json.dumps({"error": why[:1000]})


def _environment() -> Any:
    """As `_cached_compile_jinja_template` of transformers makes it."""
    from jinja2 import ext, nodes, sandbox, utils
    from jinja2.exceptions import SecurityError, TemplateError

    class Generation(ext.Extension):
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_whole"), [], [], body).set_lineno(line)

        def _whole(self, caller: Any) -> Any:
            return caller()

    class TemplateDict:
        def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
            return dict(*args, **values)

        def fromkeys(self, *args: Any, **values: Any) -> dict[Any, Any]:
            return dict.fromkeys(*args, **values)

    class TemplateNamespace(utils.Namespace):
        def __init__(*args: Any, **values: Any) -> None:
            attributes = dict(*args[1:], **values)
            for name in attributes:
                _public(name)
            utils.Namespace.__init__(args[0], attributes)

        def __setitem__(self, name: str, value: Any) -> None:
            _public(name)
            super().__setitem__(name, value)

    def _public(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"it may not store the attribute {name}")

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def strftime_now(form: str) -> str:
        return datetime.now().strftime(form)

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(
        raise_exception=raise_exception,
        strftime_now=strftime_now,
        dict=TemplateDict(),
        namespace=TemplateNamespace,
    )
    return environment


if __name__ == "__main__":
    main()
