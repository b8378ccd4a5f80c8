"""Fills one chat template, in a separate process: see `engine.processes.limited`.

The environment is the same as in transformers' `chat_template_utils`, so that the text is the same. Importing
transformers for it would take ten times as long as importing jinja2.
"""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

from jinja2 import ext, nodes, sandbox, utils
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError


def fill(given: dict[str, Any]) -> dict[str, Any]:
    """Fill a template.

    Args:
        given: `template`, `values`, and `others`, each of which replaces some of the values; the template is filled
            with each of these, too, within half of the `seconds` and a limit of `characters`.

    Returns:
        `text`, and `others` with the texts for the other values, or None if one wasn't filled; or `error`.
    """
    try:
        template = environment().from_string(given["template"])
        text = template.render(**given["values"])
    except MemoryError:
        raise
    except TemplateSyntaxError as error:
        return {"error": f"line {error.lineno}: {error.message}"[:1000]}
    except Exception as error:  # a template may make jinja2 raise anything
        return {"error": (str(error) or type(error).__name__)[:1000]}
    if len(text) > given["characters"]:
        return {"error": f"it makes {len(text)} characters of it"}
    begun, texts = time.process_time(), list[str | None]()
    most = min(given["characters"], 2**22) // max(1, len(text))
    for number, others in enumerate(given["others"], 1):
        took = time.process_time() - begun
        filled = None
        if number <= most and begun + took * (1 + 1 / number) <= given["seconds"] / 2:
            try:
                filled = template.render(**{**given["values"], **others})
            except Exception:  # the marks disturb it
                filled = None
        texts.append(filled)
    return {"text": text, "others": texts}


# ---- the environment, as `_cached_compile_jinja_template` of transformers makes it -------------


class Generation(ext.Extension):
    """The block `generation`, which marks answers for training; here it only writes its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

    def _write(self, caller: Any) -> Any:
        return caller()


class TemplateDict:
    """The function `dict` of templates."""

    def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
        return dict(*args, **values)

    def fromkeys(self, *args: Any, **values: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **values)


class TemplateNamespace(utils.Namespace):
    """The function `namespace` of templates; its attributes can't begin with `_`."""

    def __init__(*args: Any, **values: Any) -> None:
        attributes = dict(*args[1:], **values)
        for name in attributes:
            _check_public(name)
        utils.Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


def _check_public(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"it may not store the attribute {name}")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def environment() -> Any:
    """Make a jinja2 environment like that of transformers."""
    made = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    made.filters["tojson"] = _tojson
    made.globals.update(
        raise_exception=_raise_exception,
        strftime_now=lambda form: datetime.now().strftime(form),
        dict=TemplateDict(),
        namespace=TemplateNamespace,
    )
    return made
