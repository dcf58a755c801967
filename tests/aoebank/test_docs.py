"""The documentation names every command, option, variable, code and schema there is."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest
from support import golden_harness

import aoebank
from aoebank import Event, errors
from aoebank.cli import COMMANDS
from aoebank.formats import registry
from aoebank.formats.provenance import SCHEMA
from aoebank.model.codes import CODES
from aoebank.storage.readers import environment

ROOT = Path(__file__).resolve().parents[2]
BANK = (ROOT / "docs/bank.md").read_text(encoding="utf-8")
VALIDATE = (ROOT / "docs/validate.md").read_text(encoding="utf-8")
FORMATS = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
CODE_ROW = re.compile(
    r"^\| `(AB\d{3})` \| (error|warning|note) \| (.*?)(?: \(.*\))? \|$", re.MULTILINE
)
MODULES = [
    module.name
    for module in pkgutil.walk_packages(aoebank.__path__, "aoebank.")
    if ".testing" not in module.name
]


DOCUMENT_FLAGS = [flag for one in aoebank.DOCUMENTS.values() for flag in one.flags]


def test_words_for_documents_are_documented() -> None:
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert not [flag for flag in DOCUMENT_FLAGS if f"`{flag} " not in page]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_its_options_are_documented(command: str) -> None:
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")]
    handwritten = "".join(page for page in pages if "generate_cli_reference" not in page)
    assert f"aoebank {command}" in handwritten
    text = golden_harness.run("aoebank", [command, "--help"]).stdout
    for option in re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE):
        assert option in ("--help", *DOCUMENT_FLAGS) or f"{option}" in handwritten


def test_every_finding_code_is_documented_with_severity_and_title() -> None:
    documented = {code: (severity, title) for code, severity, title in CODE_ROW.findall(VALIDATE)}
    assert documented == {
        code: (str(meaning.severity), meaning.title) for code, meaning in CODES.items()
    }


def test_every_error_code_is_documented() -> None:
    kinds = [errors.AoebankError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = [kind for kind in kinds if kind.__module__ == errors.__name__]
    for code in {kind.code for kind in ours} - {"error"}:
        assert f"| `{code}` |" in BANK


def test_every_variable_event_format_and_schema_is_documented() -> None:
    for variable in (environment.TUNE_BANK_PATH, environment.ASCEND_CACHE_PATH, environment.HOME):
        assert f"| `{variable}` |" in BANK
    for event in Event:
        assert f"| `{event}` |" in FORMATS
    for name in (known.name for known in registry.FORMATS):
        assert f"`{name}`" in FORMATS
    assert SCHEMA in FORMATS
    for schema in (ROOT / "schemas").rglob("*.json"):
        assert schema.relative_to(ROOT).as_posix() in FORMATS


def test_schemas_at_the_root_are_the_ones_of_the_package() -> None:
    at_root, own = ROOT / "schemas", ROOT / "aoebank" / "schemas"
    if at_root.is_symlink():
        assert at_root.resolve() == own
    else:  # in a source archive, which has no links
        names = [path.relative_to(own) for path in own.rglob("*.json")]
        assert names == [name for name in names if (at_root / name).exists()]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    module: ModuleType = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_docstring_of_its_own(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    for public, value in vars(module).items():
        is_own = getattr(value, "__module__", None) == name and callable(value)
        if is_own and not public.startswith("_") and public != "command":
            assert value.__doc__, f"{name}.{public}"


def test_every_public_function_is_documented() -> None:
    page = (ROOT / "docs/bank.md").read_text(encoding="utf-8")
    verbs = [name for name in aoebank.__all__ if f"aoebank.{name}" in page]
    for name in aoebank.__all__:
        home = getattr(getattr(aoebank, name), "__module__", "")
        assert name in verbs or not home.endswith(".api"), name
