"""Documentation says what the program does: commands, codes, variables, links, examples."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import load_script

from aoe.errors import AoeError

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FIRST_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "changes/README.md")
PAGES = [*(ROOT / name for name in FIRST_PAGES), *sorted(DOCS.rglob("*.md"))]
SOURCES = [*(ROOT / "aoe").rglob("*.py"), *(ROOT / "aoebank").rglob("*.py")]
SOURCE_PATH = re.compile(r"`{1,2}((?:[\w-]+/)+[\w-]+\.(?:py|c|h|toml|sh))`")
MODULE = re.compile(r"`{1,2}((?:aoe|aoebank)(?:\.\w+){2,})`")
VARIABLE = re.compile(r"""(?:env\.get\(|env\[|variables?=\(?)\s*["']([A-Z][A-Z_]+)["']""")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def _generator(name: str = "generate_cli_reference") -> ModuleType:
    return load_script(f"docs/{name}.py")


def test_command_reference_is_up_to_date() -> None:
    stale = [
        file.name
        for file, text in _generator().references().items()
        if not file.exists() or file.read_text() != text
    ]
    assert not stale, f"run python docs/generate_cli_reference.py: {stale}"


def test_manual_pages_are_up_to_date() -> None:
    stale = [
        file.name
        for file, text in _generator("generate_man_pages").pages().items()
        if not file.exists() or file.read_text() != text
    ]
    assert not stale, f"run python docs/generate_man_pages.py: {stale}"


@pytest.mark.parametrize("page", sorted((DOCS / "man").iterdir()), ids=lambda page: page.name)
def test_manual_page_is_shown_without_a_complaint(page: Path) -> None:
    if shutil.which("man") is None:
        pytest.skip("needs man")
    shown = subprocess.run(
        ["man", "--warnings", "--encoding=UTF-8", "--local-file", page],
        env={**os.environ, "MANWIDTH": "100", "MANPAGER": "cat", "PAGER": "cat"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not shown.stderr
    text = re.sub(r"\x1b\[[\d;]*m|.\x08", "", shown.stdout)
    assert "SYNOPSIS" in text and "EXIT CODES" in text and "SEE ALSO" in text
    assert "\\" not in text and "--help" in text


def test_table_of_rewrite_rules_is_up_to_date() -> None:
    generator = _generator("generate_rewrites")
    text = generator.PAGE.read_text()
    assert generator.page(text) == text, "run python docs/generate_rewrites.py"


def _errors(kind: type[AoeError]) -> Iterator[type[AoeError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _errors(child)


def test_every_engine_error_code_is_documented_and_its_own() -> None:
    text = (DOCS / "environment.md").read_text()
    codes = [kind.code for kind in _errors(AoeError)]
    assert len(set(codes)) == len(codes)
    assert not [code for code in codes if f"| {code} |" not in text]


def test_every_environment_variable_is_documented() -> None:
    text = (DOCS / "environment.md").read_text()
    read = {name for source in SOURCES for name in VARIABLE.findall(source.read_text())}
    assert {"TUNE_BANK_PATH", "REPEAT_TUNE", "CC"} <= read | {"TUNE_BANK_PATH"}
    undocumented = sorted(name for name in read if f"`{name}`" not in text)
    assert undocumented in ([], ["PATH"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    broken = [
        target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()
    ]
    assert not broken


def test_index_lists_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    missing = [
        page.name
        for page in DOCS.glob("*.md")
        if page.name != "README.md" and f"({page.name})" not in index
    ]
    assert not missing


def test_nothing_unfinished_is_left_in_the_pages() -> None:
    marks = re.compile(r"TODO|FIXME|XXX|<!-- (demo|figures) -->")
    assert not [page.name for page in PAGES if marks.search(page.read_text())]


def test_table_of_settings_is_that_of_the_program() -> None:
    generator = _generator("generate_settings_table")
    assert generator.page_with_table() == (DOCS / "environment.md").read_text()
    assert generator.settings_table() in generator.page_with_table()


def test_paths_and_modules_in_backticks_exist() -> None:
    """A path may leave out its first folders: `validation/kernels.py` is in `aoe/`."""
    known = [
        f"/{path.relative_to(ROOT).as_posix()}"
        for top in ("aoe", "aoebank", "tests", "docs", "benchmarks", "findings")
        for path in (ROOT / top).rglob("*.*")
    ]
    texts = {path: path.read_text(encoding="utf-8") for path in [*PAGES, *SOURCES]}
    texts.pop(ROOT / "CHANGELOG.md")  # tells of what was
    stale = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts.items()
        for name in SOURCE_PATH.findall(text)
        if not any(file.endswith(f"/{name}") for file in known)
    ]
    stale += [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts.items()
        for name in MODULE.findall(text)
        if not _is_name(name)
    ]
    assert not stale, "\n".join(stale)


def _is_name(name: str) -> bool:
    """True if a dotted name is a module, or a name a module mentions."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:length])
        files = [
            file for file in (place.with_suffix(".py"), place / "__init__.py") if file.exists()
        ]
        if files:
            text = files[0].read_text(encoding="utf-8")
            return all(part in text for part in parts[length : length + 1])
    return False
