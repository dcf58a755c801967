"""The words a reader's search is declared in: places, demands, rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.errors import UsageError
from aoebank.model.resolution import Failure, Reader, UnionRule

TUNE_BANK_PATH = "TUNE_BANK_PATH"
ASCEND_CACHE_PATH = "ASCEND_CACHE_PATH"
ASCEND_OPP_PATH = "ASCEND_OPP_PATH"
AOE_BUILT_IN_BANK = "AOE_BUILT_IN_BANK"
HOME = "HOME"
AOE_BANK_UNION = "AOE_BANK_UNION"
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
    """Everything outside the bank that decides where it is."""

    env: Mapping[str, str]  # Environment to go by; an empty variable counts as unset
    cwd: Path  # What relative paths are relative to
    # Option `--op_bank_path` of a conversion, `ge.op_bank_path` of a session.
    op_bank_path: str | None = None
    mdl_bank_path: str | None = None  # Option `--mdl_bank_path`, `ge.mdl_bank_path`
    access: Access = system_access  # Tells whether a path may be used with an `os.access` mode

    def text(self, source: str) -> str:
        """Return the value of a variable or option, empty when it is not set."""
        options = {OP_BANK_PATH: self.op_bank_path, MDL_BANK_PATH: self.mdl_bank_path}
        return (options[source] if source in options else self.env.get(source)) or ""

    def path(self, source: str) -> Path | None:
        """Return the path a variable or option names, or None when it is not set."""
        text = self.text(source)
        return _tidy(self.cwd / text) if text else None

    def members(self, source: str) -> tuple[Path, ...]:
        """Return the paths of a list without its empty members; none for a single path.

        A path that exists is a single one, be there a `:` in it or not.
        """
        whole, text = self.path(source), self.text(source)
        if whole is None or os.pathsep not in text or os.path.lexists(whole):
            return ()
        # `$TUNE_BANK_PATH:bank` has an empty member where the variable was not set
        texts = filter(None, text.split(os.pathsep))
        return tuple(_tidy(self.cwd / text) for text in texts)

    @property
    def union(self) -> UnionRule:
        """Rule by which one of several banks answers.

        Raises:
            UsageError: `AOE_BANK_UNION` names none.
        """
        word = self.text(AOE_BANK_UNION) or UnionRule.FIRST
        if word not in tuple(UnionRule):
            expected = " or ".join(UnionRule)
            raise UsageError("no such rule", where=AOE_BANK_UNION, got=word, expected=expected)
        return UnionRule(word)


def _tidy(path: Path) -> Path:
    """Return `path` without `..`, unless that would lead elsewhere (behind a link)."""
    tidy = Path(os.path.normpath(path))
    try:
        return tidy if tidy == path or tidy.samefile(path) else path
    except (OSError, ValueError):
        return tidy


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place a program looks into, and what it does when it cannot."""

    source: str  # Variable or option that names it
    folder: str = ""  # From there to the root of the bank
    # From the root to the files, in order; the first folder with files counts.
    below: tuple[str, ...] = ("",)
    # What happens if nothing before decides and this is not set either.
    unset: Failure | None = None
    # What happens if the path named is no directory; None: quietly nothing there.
    missing: Failure | None = None
    named_needs: int = 0  # Permissions (`os.access`) the path named must grant
    root_needs: int = 0  # Permissions the root must grant if it exists
    files_needs: int = 0  # Permissions the directory of the files must grant if it exists
    denied: Failure = Failure.STOP  # What happens if one of these is not granted
    file_needs: int = os.R_OK  # Permissions each file must grant
    file_denied: Failure = Failure.UNKNOWN  # What happens if one does not
    # Whether the next place is looked at if this one holds no such file.
    falls_through: bool = False
    created: bool = True  # Whether a root that does not exist is created when writing
    any_name: bool = False  # Whether files are told by their content, their name being unknown
    cann_code: str = ""  # What CANN calls the error, empty if it has no code


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Something a program insists on before it looks anywhere."""

    source: str
    unset: Failure | None = None
    missing: Failure | None = None
    cann_code: str = ""  # What CANN calls the error, empty if it has no code


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules by which one program finds its bank; a new program is one more value."""

    reader: Reader
    format: str  # Name of the format of its files, which knows how they are called
    custom: tuple[Place, ...]  # Places of the custom bank, first named first
    built_in: tuple[Place, ...] = ()  # Places of the built-in bank, first existing first
    demands: tuple[Demand, ...] = ()
    is_writer: bool = False  # Whether it writes banks
    is_reader: bool = True  # Whether it looks records up
    is_operator: bool = True  # Whether its banks are per operator type
    # soc_version -> those whose banks it goes on to, in order.
    related: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Whether the first built-in place with the file counts, instead of the first directory that
    # exists.
    one_built_in_file: bool = False
    keeps_good_lines: bool = False  # Whether a file with bad records still gives the good ones
    # Whether `TUNE_BANK_PATH` may be a list of banks; CANN's programs take it for one path.
    takes_list: bool = False
    obeys_quarantine: bool = False  # Whether records in the quarantine of a bank are passed over
    fastest_wins: bool = False  # Whether the fastest record of a tier counts, instead of the first
