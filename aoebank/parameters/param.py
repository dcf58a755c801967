"""Parameters of verbs as the command line takes them: its commands are made from these.

A verb is a public function. A parameter with a `Param` in its annotation is an option or an
argument of the command of the same name; one without is for callers from Python alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, auto
from inspect import Parameter
from pathlib import Path
from typing import Any


class Completes(StrEnum):
    """What a shell completes a value from; see `completion.py`."""

    KEY = auto()
    OP_TYPE = auto()
    SOC_VERSION = auto()
    TAG = auto()
    SNAPSHOT = auto()
    SIDE = auto()
    TARGET = auto()
    CODE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """How the command line takes a parameter."""

    help: str = ""
    """Its meaning."""
    kind: Any = bool
    """Type on the command line: a class, `list[str]` or an enumeration; None for that of the
    parameter."""
    flags: tuple[str, ...] = ()
    """Of an option; by default `--name`, with dashes."""
    metavar: str | None = None
    """Stands for the value in the help."""
    is_argument: bool = False
    """True for an argument."""
    least: float | None = None
    """Smallest number."""
    most: float | None = None
    """Largest number."""
    default: Any = Parameter.empty
    """On the command line, where it is another than the function's."""
    is_needed: bool = False
    """True if there has to be one, of `*arguments`."""
    expected: str = ""
    """What an option has to be given for; empty where it may be left out."""
    hidden: bool = False
    """True to leave it out of the help."""
    completes: Completes | tuple[str, ...] | None = None
    """What a shell completes its value from, or the very words; None for files, and for the members
    of an enumeration."""

    @property
    def text(self) -> str:
        """Meaning as the help of the command has it."""
        return self.help


BANK_PATHS = Param(
    help="Bank files or trees.", kind=list[Path], metavar="BANK...", is_argument=True
)
BANK_SIDE = Param(
    help="Bank file or tree, git:REV[:PATH] or snapshot:REF[:ROOT].",
    kind=str,
    completes=Completes.SIDE,
    metavar="[PATH]",
    is_argument=True,
)
BANK_SIDES = Param(
    help="Bank files or trees, git:REV or snapshot:REF.",
    kind=list[str],
    completes=Completes.SIDE,
    metavar="[BANK]...",
    is_argument=True,
)
ROOT = Param(
    help="Root of the bank; by default the one you are in, else the environment's.",
    kind=Path,
    metavar="[ROOT]",
    is_argument=True,
)
SOC = Param(
    help="Only this soc_version; * and ? are wild; may be given again.",
    kind=list[str],
    metavar="SOC",
    completes=Completes.SOC_VERSION,
)
OP = Param(
    help="Only this op_type; * and ? are wild; may be given again.",
    kind=list[str],
    metavar="OP_TYPE",
    completes=Completes.OP_TYPE,
)
KEY = Param(
    help="Only records of this key, or whose key starts so; may be given again.",
    kind=list[str],
    metavar="KEY",
    completes=Completes.KEY,
)
BUILT_IN = Param(
    help="Built-in bank to compare times with; default $ASCEND_OPP_PATH.",
    kind=Path,
    metavar="DIR",
)
DRY_RUN = Param(help="Show what would be done, write nothing.")
WITH_QUARANTINED = Param(help="Bring records back that are in quarantine too.")
MOVE_TAG = Param(help="Move the tag if another snapshot has it.", flags=("--force",))
DOCUMENTS: Mapping[str, Param] = {
    "html": Param(
        help="Write an HTML page to standard output, or to FILE.",
        kind=str,
        flags=("--html",),
        default=None,
        metavar="[FILE]",
    ),
    "as_json": Param(
        help="Write exactly one JSON document, likewise.",
        kind=str,
        flags=("--json",),
        default=None,
        metavar="[FILE]",
    ),
    "markdown": Param(
        help="Write Markdown, likewise.",
        kind=str,
        flags=("--markdown",),
        default=None,
        metavar="[FILE]",
    ),
    "document_file": Param(
        help="Write to FILE: .html, .json, .md or .txt.",
        kind=str,
        flags=("-o",),
        default=None,
        metavar="FILE",
    ),
}
"""Documents that every command makes; `aoebank.report.documents` reads the words that ask for them.
A command whose own `-o` names its result has no `-o` for documents."""
