"""What `mkdocs build` does with the pages: its menu is docs/README.md, links lead to what is there.

`mkdocs.yml` names this file as a hook; mkdocs calls the functions by their names. Files outside of
docs/ that a page links to are part of the site, below `files/`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).resolve().parent
_ROOT = _DOCS.parent
_FILES = "files"
_ENTRY = re.compile(r"\[([^]]+)\]\(([\w/-]+\.md)\)")
_LINK = re.compile(r"(\[(?:[^][]|\[[^]]*\])*\])\((?!https?:|mailto:|#)([^)#\s]+)((?:#[^)\s]*)?)\)")
_WIDE_ROW = re.compile(r"^(?=.{170})\|(?:[^|\n]*\|){6,}$", re.MULTILINE)


def menu(index: str) -> list[dict[str, Any]]:
    """Return the menu of the site: a section for each heading line of the index page.

    Args:
        index: Text of docs/README.md: lines without a bullet are headings, bullets name pages.
    """
    sections: list[tuple[str, list[dict[str, str]]]] = []
    seen: set[str] = set()
    for line in index.splitlines():
        if line.startswith(("- ", "  ")):
            pages = [(title, page) for title, page in _ENTRY.findall(line) if page not in seen]
            if sections:
                sections[-1][1].extend({title.replace("`", ""): page} for title, page in pages)
                seen.update(page for _, page in pages)
        elif line and not line.startswith("#"):
            sections.append((line.rstrip(":."), []))
    return [{"Overview": "README.md"}, *({title: pages} for title, pages in sections if pages)]


def on_config(config: Any) -> Any:
    """Give the site its menu."""
    config.nav = menu((_DOCS / "README.md").read_text(encoding="utf-8"))
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the files outside of docs/ that pages link to."""
    from mkdocs.structure.files import File

    pages = [_DOCS / file.src_uri for file in files.documentation_pages()]
    for place in sorted({place for page in pages for place in _outside(page)}):
        source = str(_ROOT / place)
        files.append(File.generated(config, f"{_FILES}/{place}", abs_src_path=source))
    return files


def _outside(page: Path) -> Iterator[str]:
    """Yield the files outside of docs/ that a page links to, as paths in the repository."""
    for _, target, _ in _LINK.findall(page.read_text(encoding="utf-8")):
        place = _place(page, target)
        if place is not None and not place.startswith("docs/"):
            yield place


def _place(page: Path, target: str) -> str | None:
    """Return the path in the repository of a linked file; None if it is none."""
    place = Path(os.path.normpath(page.parent / target))  # not what a link of files leads to
    return place.relative_to(_ROOT).as_posix() if place.is_file() else None


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Return a page whose links lead to pages and files of the site; others are words.

    A page with a wide table has the room of the table of contents.
    """
    if _WIDE_ROW.search(markdown):
        page.meta["hide"] = [*page.meta.get("hide", ()), "toc"]
    uri = page.file.src_uri
    source = _ROOT / uri.removeprefix(f"{_FILES}/") if _is_outside(uri) else _DOCS / uri

    def linked(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        place = _place(source, target)
        if place is None:
            return words[1:-1]
        on_site = place.removeprefix("docs/") if place.startswith("docs/") else f"{_FILES}/{place}"
        file = files.get_file_from_path(on_site)
        if file is None or file.inclusion.is_excluded():
            return words[1:-1]
        way = os.path.relpath(on_site, Path(uri).parent)
        return f"{words}({way}{anchor})"

    return _LINK.sub(linked, markdown)


def _is_outside(uri: str) -> bool:
    return uri.startswith(f"{_FILES}/")
