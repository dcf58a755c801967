"""The renderer of HTML pages: Jinja2 templates over one base page with one stylesheet.

A text becomes markup only by autoescape. Pages are one file, load nothing, and forbid themselves
to: what a bank holds may be hostile, and reports are opened where they were mailed to.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from aoebank.report.output import printable, said_warnings

_TEMPLATES = Path(__file__).with_name("templates")


def page_environment(
    *functions: Callable[..., object],
    folder: Path = _TEMPLATES,
    script: str = "",
    **names: object,
) -> Environment:
    """Return the environment of the pages in a folder.

    A page extends `page.html`, which has the stylesheet, and draws its parts by the macros of
    `parts.html`; its script sorts tables, and no other may run but `script`.

    Args:
        functions: Pages call them by their names.
        folder: Templates of the pages.
        script: File of a script beside ours that these pages have, too.
        names: What else all pages have.
    """
    style, *scripts = (
        (_TEMPLATES / name).read_text("utf-8")
        for name in filter(None, ("style.css", "sort.js", script))
    )
    code = "".join(scripts)
    environment = Environment(
        loader=FileSystemLoader([folder, _TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(
        {function.__name__: function for function in functions},
        said_warnings=said_warnings,
        style=Markup(style),
        script=Markup(code),
        policy=f"default-src 'none'; style-src {_source(style)}; script-src {_source(code)}; "
        "base-uri 'none'; form-action 'none'",
        **names,
    )
    return environment


def _visible(value: object) -> object:
    """Return a text with its control characters spelled out; markup as it is."""
    return printable(value) if type(value) is not Markup and isinstance(value, str) else value


def _source(text: str) -> str:
    """Return the hash source of an inline text in a content security policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"
