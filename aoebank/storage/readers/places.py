"""The words a reader's search is declared in: places, demands, rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.model.resolution import Failure, Reader

TUNE_BANK_PATH = "TUNE_BANK_PATH"
ASCEND_CACHE_PATH = "ASCEND_CACHE_PATH"
ASCEND_OPP_PATH = "ASCEND_OPP_PATH"
AOE_BUILT_IN_BANK = "AOE_BUILT_IN_BANK"
HOME = "HOME"
OP_BANK_PATH = "--op-bank-path"
MDL_BANK_PATH = "--mdl-bank-path"

DEFAULT_FOLDER = "Ascend/latest/data/aoe/custom/op"
GRAPH_DEFAULT_FOLDER = "Ascend/latest/data/aoe/custom/graph"

SOC = "<soc_version>"  # in the place of what was not asked for
SHORT_SOC = "<short soc>"
READ_ENTER = os.R_OK | os.X_OK
READ_WRITE = os.R_OK | os.W_OK
READ_WRITE_ENTER = os.R_OK | os.W_OK | os.X_OK

Access = Callable[[Path, int], bool]


def system_access(path: Path, mode: int) -> bool:
    """True if this process may use a path so, as far as the system tells."""
    return os.access(path, mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Everything outside the bank that decides where it is.

    Attributes:
        env: Environment to go by; an empty variable counts as unset.
        cwd: What relative paths are relative to.
        op_bank_path: Option `--op_bank_path` of a conversion, `ge.op_bank_path` of a session.
        mdl_bank_path: Option `--mdl_bank_path`, `ge.mdl_bank_path`.
        access: Tells whether a path may be used with an `os.access` mode.
    """

    env: Mapping[str, str]
    cwd: Path
    op_bank_path: str | None = None
    mdl_bank_path: str | None = None
    access: Access = system_access

    def text(self, source: str) -> str:
        """Return the value of a variable or option, empty when it is not set."""
        options = {OP_BANK_PATH: self.op_bank_path, MDL_BANK_PATH: self.mdl_bank_path}
        return (options[source] if source in options else self.env.get(source)) or ""

    def path(self, source: str) -> Path | None:
        """Return the path a variable or option names, or None when it is not set."""
        text = self.text(source)
        return _tidy(self.cwd / text) if text else None


def _tidy(path: Path) -> Path:
    """Return `path` without `..`, unless that would lead elsewhere (behind a link)."""
    tidy = Path(os.path.normpath(path))
    try:
        return tidy if tidy == path or tidy.samefile(path) else path
    except (OSError, ValueError):
        return tidy


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place a program looks into, and what it does when it cannot.

    Attributes:
        source: Variable or option that names it.
        folder: From there to the root of the bank.
        below: From the root to the files, in order; the first folder with files counts.
        unset: What happens if nothing before decides and this is not set either.
        missing: What happens if the path named is no directory; None: quietly nothing there.
        named_needs: Permissions (`os.access`) the path named must grant.
        root_needs: Permissions the root must grant if it exists.
        files_needs: Permissions the directory of the files must grant if it exists.
        denied: What happens if one of these is not granted.
        file_needs: Permissions each file must grant.
        file_denied: What happens if one does not.
        falls_through: Whether the next place is looked at if this one holds no such file.
        created: Whether a root that does not exist is created when writing.
        any_name: Whether files are told by their content, their name being unknown.
        cann_code: What CANN calls the error, empty if it has no code.
    """

    source: str
    folder: str = ""
    below: tuple[str, ...] = ("",)
    unset: Failure | None = None
    missing: Failure | None = None
    named_needs: int = 0
    root_needs: int = 0
    files_needs: int = 0
    denied: Failure = Failure.STOP
    file_needs: int = os.R_OK
    file_denied: Failure = Failure.UNKNOWN
    falls_through: bool = False
    created: bool = True
    any_name: bool = False
    cann_code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Something a program insists on before it looks anywhere.

    Attributes:
        cann_code: What CANN calls the error, empty if it has no code.
    """

    source: str
    unset: Failure | None = None
    missing: Failure | None = None
    cann_code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules by which one program finds its bank; a new program is one more value.

    Attributes:
        format: Name of the format of its files, which knows how they are called.
        custom: Places of the custom bank, first named first.
        built_in: Places of the built-in bank, first existing first.
        is_writer: Whether it writes banks.
        is_reader: Whether it looks records up.
        is_operator: Whether its banks are per operator type.
        related: soc_version -> those whose banks it goes on to, in order.
        one_built_in_file: Whether the first built-in place with the file counts, instead
            of the first directory that exists.
        keeps_good_lines: Whether a file with bad records still gives the good ones.
        fastest_wins: Whether the fastest record of a tier counts, instead of the first.
    """

    reader: Reader
    format: str
    custom: tuple[Place, ...]
    built_in: tuple[Place, ...] = ()
    demands: tuple[Demand, ...] = ()
    is_writer: bool = False
    is_reader: bool = True
    is_operator: bool = True
    related: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    one_built_in_file: bool = False
    keeps_good_lines: bool = False
    fastest_wins: bool = False
