"""What `mkdocs build` does with the pages: its menu is docs/README.md, links stay inside docs/.

`mkdocs.yml` names this file as a hook; mkdocs calls the functions by their names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).resolve().parent
_ENTRY = re.compile(r"\[[^]]+\]\(([\w-]+\.md)\)")
_OUTSIDE = re.compile(r"\[([^]]+)\]\((?:\.\./[^)]+|[\w-]+\.ipynb)\)")


def menu(index: str) -> list[dict[str, Any]]:
    """Return the menu of the site: a section for each heading line of the index page.

    Args:
        index: Text of docs/README.md: lines without a bullet are headings, bullets name pages.
    """
    sections: list[tuple[str, list[str]]] = []
    seen: set[str] = set()
    for line in index.splitlines():
        if line.startswith(("- ", "  ")):
            pages = [page for page in _ENTRY.findall(line) if page not in seen]
            if sections:
                sections[-1][1].extend(pages)
                seen.update(pages)
        elif line and not line.startswith("#"):
            sections.append((line.rstrip(":."), []))
    return [{"Overview": "README.md"}, *({title: pages} for title, pages in sections if pages)]


def on_config(config: Any) -> Any:
    """Give the site its menu."""
    config.nav = menu((_DOCS / "README.md").read_text(encoding="utf-8"))
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page whose links out of docs/ are words: those files and notebooks are not on it."""
    return _OUTSIDE.sub(r"\1", markdown)
