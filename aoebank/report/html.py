"""The renderer of HTML pages: one template, one stylesheet, and the parts pages are built of.

A text becomes markup only through `escape`. Pages are one file, load nothing, and forbid
themselves to: what a bank holds may be hostile, and reports are opened where they were mailed to.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup as Markup  # exported

from aoebank.report.output import printable

Content: TypeAlias = "str | Markup"
Block: TypeAlias = tuple[str, float, float, float, float]
"""Part of a bar: its class, x, y, width and height."""
T = TypeVar("T")
_TEMPLATES = Path(__file__).with_name("templates")
_VOID = frozenset({"meta", "br", "input"})


def element(tag: str, *children: Content, **attributes: str | float) -> Markup:
    """Return an element; texts in it are escaped, markup is not.

    Args:
        attributes: `class_` stands for `class` and `data_x` for `data-x`; False leaves one out.
            Numbers are places in a drawing, of which tenths are enough.

    >>> str(element("td", "<b>", class_="key"))
    '<td class="key">&lt;b&gt;</td>'
    """
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
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
    return Markup(str(escape(separator)).join(map(escape, parts)))


def html_page(title: str, *body: Content) -> str:
    """Return a whole page whose tables can be sorted; it may run that script and nothing else."""
    style, script = (
        Markup((_TEMPLATES / name).read_text("utf-8")) for name in ("style.css", "sort.js")
    )
    policy = (
        f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    template = _environment().get_template("page.html")
    text = template.render(title=title, body=body, style=style, script=script, policy=policy)
    return f"{text}\n"


# ---- parts ----


def page_header(title: str, *lines: Content) -> Markup:
    """Return the head of a page."""
    return _part("header", title, lines)


def tiles(found: Iterable[tuple[Content, Content, str]]) -> Markup:
    """Return figures with what they are; the third is a class: bad, good, note or none."""
    return _part("tiles", found)


def section(title: Content, *content: Content, count: str = "", class_: str = "") -> Markup:
    """Return a card of a page, with a number behind its title."""
    return _part("section", title, content, count, class_)


def table(
    heads: Sequence[str],
    rows: Iterable[Markup],
    numbers: Collection[int] = (),
    name: str = "",
) -> Markup:
    """Return a table that scrolls sideways, with the keyboard as well.

    Args:
        rows: From `row`.
        numbers: Columns of figures, aligned right.
        name: For those who cannot see the table.
    """
    return _part("table", heads, rows, numbers, name)


def columns(
    things: Iterable[T],
    *columns: tuple[str, str, Callable[[T], Content]],
    name: str,
    ids: Callable[[T], str] = lambda _: "",
    drops_empty: bool = False,
) -> Markup:
    """Return a table with a row for each thing.

    Args:
        columns: Title, `r` for one of figures, and the cell of a thing.
        ids: Of the rows, where links lead to them.
        drops_empty: Leave columns out that have nothing but dashes.
    """
    rows = [(ids(thing), [cell(thing) for _, _, cell in columns]) for thing in things]
    used = [*range(len(columns))]
    if drops_empty:
        used = [place for place in used if any(_says_something(cells[place]) for _, cells in rows)]
    figures = [at for at, place in enumerate(used) if columns[place][1] == "r"]
    drawn = (row(*(cells[place] for place in used), id=id_) for id_, cells in rows)
    return table([columns[place][0] for place in used], drawn, figures, name)


def _says_something(cell: Content) -> bool:
    return (cell.striptags() if isinstance(cell, Markup) else cell) not in ("", "-")


def row(*cells: Content, id: str = "") -> Markup:
    """Return a row; a text becomes a cell, markup is a cell already."""
    made = (cell if isinstance(cell, Markup) else element("td", cell) for cell in cells)
    named = f' id="{escape(id)}"' if id else ""
    return Markup(f"<tr{named}>{''.join(made)}</tr>")


def number_cell(value: float | None, form: str, unit: str = "") -> Markup:
    """Return the cell of a figure, which sorts as such; a dash for none."""
    if value is None:
        return element("td", "-", class_="right", data_sort="")
    return element("td", f"{value:{form}}{unit}", class_="right", data_sort=f"{value}")


def drawing(
    width: float, height: float, *parts: Markup, class_: str, label: str, role: str = "img"
) -> Markup:
    """Return a drawing in SVG, as wide as its style says.

    Args:
        label: For those who cannot see it.
        role: `group` where parts of it are links.
    """
    box = f"0 0 {width:.0f} {height:.0f}"
    return element("svg", *parts, viewBox=box, class_=class_, role=role, aria_label=label)


def listing(items: Iterable[Content]) -> Markup:
    """Return a list."""
    return _part("listing", items)


def bars(rows: Iterable[tuple[str, str, Sequence[Block]]], height: int = 16) -> Markup:
    """Return bars below each other: a name, a drawing 100 wide, and the words beside it."""
    return _part("bars", ((name, words, blocks, height) for name, words, blocks in rows))


def legend(names: Iterable[tuple[str, str]]) -> Markup:
    """Return the legend of colours: class and words."""
    return _part("legend", names)


@cache
def _environment() -> Environment:
    def finalize(value: object) -> object:
        return escape(value) if isinstance(value, str) else value

    return Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, finalize=finalize)


def _part(name: str, *values: Any) -> Markup:
    macro = getattr(_environment().get_template("parts.html").module, name)
    return cast(Callable[..., Markup], macro)(*values)


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return escape(value)
    return "" if value is True else f"{value:.1f}".removesuffix(".0")


def _source(text: str) -> str:
    """Return the hash source of an inline text in a content security policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"
