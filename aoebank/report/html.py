"""HTML that is safe by construction: a text becomes markup only through `element`.

Pages are one file, load nothing, and forbid themselves to: what a bank holds may be hostile,
and reports are opened where they have been mailed to.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable
from typing import TypeAlias

from aoebank.report.html_style import SCRIPT, STYLE
from aoebank.report.output import printable


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content: TypeAlias = "str | Markup"
_VOID = frozenset({"meta", "br", "input"})


def element(tag: str, *children: Content, **attributes: str | bool) -> Markup:
    """Return an element; texts in it are escaped, markup is not.

    Args:
        attributes: `class_` stands for `class` and `data_x` for `data-x`; False leaves one out.

    >>> element("td", "<b>", class_="key")
    '<td class="key">&lt;b&gt;</td>'
    """
    named = "".join(
        f' {_attribute(name)}="{escape(value if isinstance(value, str) else "")}"'
        for name, value in attributes.items()
        if value is not False
    )
    if tag in _VOID:
        return Markup(f"<{tag}{named}>")
    return Markup(f"<{tag}{named}>{''.join(map(escape, children))}</{tag}>")


def escape(content: Content) -> Markup:
    """Return a text as markup, control characters spelled out; markup as it is."""
    if isinstance(content, Markup):
        return content
    return Markup(html.escape(printable(content), quote=True))


def join(parts: Iterable[Content], separator: str = "") -> Markup:
    """Return texts and markup one after the other."""
    return Markup(escape(separator).join(map(escape, parts)))


def page(title: str, *body: Content, style: str, script: str) -> str:
    """Return a whole page that may run its own script and nothing else.

    Args:
        style: CSS of ours, without `</style`.
        script: JavaScript of ours, without `</script`.
    """
    policy = (
        f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    head = (
        element("meta", charset="utf-8"),
        element("meta", **{"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        Markup(f"<style>{style}</style>"),
    )
    tail = Markup(f"<script>{script}</script>")
    whole = element("html", element("head", *head), element("body", *body, tail), lang="en")
    return f"<!doctype html>\n{whole}\n"


def html_page(title: str, *body: Content, style: str = "") -> str:
    """Return a page in our style, whose tables can be sorted.

    Args:
        style: CSS besides, without `</style`.
    """
    main = element("main", *body)
    return page(title, main, style=STYLE + style, script=SCRIPT)


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _source(text: str) -> str:
    """Return what a content security policy calls this inline text."""
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"
