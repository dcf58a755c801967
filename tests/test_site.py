"""The site made of docs/: every page is in its menu, and mkdocs builds it without a warning."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.scripts import load_script

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def _menu() -> list[dict[str, object]]:
    readme = (DOCS / "README.md").read_text("utf-8")
    found: list[dict[str, object]] = load_script("docs/site_pages.py").menu(readme)
    return found


def test_menu_has_every_page_once() -> None:
    pages = re.findall(r"[\w-]+\.md", str(_menu()))
    assert sorted(pages) == sorted(path.name for path in DOCS.glob("*.md"))


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("mkdocs"), reason="needs the extra [docs]")
def test_site_is_built_without_a_warning_and_asks_no_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "merge.html").read_text(encoding="utf-8")
    loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="([^"]+)"', page)
    assert not [address for address in loaded if address.startswith("http")]
    assert (tmp_path / "search" / "search_index.json").exists()
