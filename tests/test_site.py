"""The site made of docs/: every page is in its menu, and mkdocs builds it without a warning."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import load_script

import aoe
import aoebank

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def _menu() -> list[dict[str, object]]:
    readme = (DOCS / "README.md").read_text("utf-8")
    found: list[dict[str, object]] = load_script("docs/site_pages.py").menu(readme)
    return found


def test_menu_has_every_page_once() -> None:
    pages = re.findall(r"[\w/-]+\.md", str(_menu()))
    assert sorted(pages) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_titles_of_the_menu_are_words() -> None:
    titles = re.findall(r"\{'([^']+)': '[\w/-]+\.md'\}", str(_menu()))
    assert len(titles) > 40
    assert not [title for title in titles if title.endswith(".md") or "`" in title]


@pytest.mark.parametrize("package", [aoe, aoebank], ids=lambda package: package.__name__)
def test_api_reference_has_every_public_name_once(package: ModuleType) -> None:
    page = (DOCS / f"api-{package.__name__}.md").read_text("utf-8")
    names = re.findall(rf"^::: {package.__name__}\.(\w+)$", page, re.MULTILINE)
    assert sorted(names) == sorted(set(package.__all__) - {"__version__"})


@pytest.mark.skipif(not importlib.util.find_spec("mkdocstrings"), reason="needs the extra [docs]")
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
    settings = (tmp_path / "environment.html").read_text(encoding="utf-8")
    assert 'data-md-type="toc" hidden' in settings  # so that its six columns are in sight
    assert "site.css" in settings and 'data-md-type="toc" hidden' not in page
    reference = (tmp_path / "api-aoebank.html").read_text(encoding="utf-8")
    # from the `Param` of the parameter, which the command has too
    assert (
        'id="aoebank.diff"' in reference and "Do not look for files with another name" in reference
    )
    tuned = (tmp_path / "api-aoe.html").read_text(encoding="utf-8")
    assert 'id="aoe.tune"' in tuned and "Weights of a Caffe model" in tuned
    assert not [*_dead_links(tmp_path)]


def _dead_links(site: Path) -> Iterator[tuple[str, str]]:
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # its links are from the root of a server
            continue
        for link in re.findall(r'<a [^>]*href="([^"#]+)', page.read_text(encoding="utf-8")):
            if ":" not in link and not (page.parent / link).exists():
                yield page.name, link
