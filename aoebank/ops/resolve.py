"""Find which directory and which files a reader would use, and say why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import AoebankError, BankPathError
from aoebank.model.file_name import find_bank_file_name
from aoebank.model.resolution import Attempt, Reader, Resolution
from aoebank.storage.bank import Bank
from aoebank.storage.tiers import explain_attempts, resolve_bank


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveResult:
    """What a reader would use.

    Attributes:
        resolution: None when the variables name nothing usable; `error` says why.
        files: Bank files for the soc_version and operator type asked for.
        is_found: Whether there is what was asked for: a root, or at least one file.
    """

    reader: Reader
    tried: tuple[Attempt, ...]
    resolution: Resolution | None
    files: tuple[Path, ...]
    is_found: bool
    error: AoebankError | None = None


def resolve(
    *, env: Mapping[str, str], cwd: Path, reader: Reader = Reader.HOST,
    soc_version: str | None = None, op_type: str | None = None,
) -> ResolveResult:  # fmt: skip
    """Return the root and the matching files; a bank that cannot be used is a result too."""
    tried = explain_attempts(env, cwd)
    try:
        resolution = resolve_bank(env=env, cwd=cwd, reader=reader)
    except BankPathError as error:
        return ResolveResult(
            reader=reader, tried=tried, resolution=None, files=(), is_found=False, error=error
        )
    files = tuple(
        path
        for path in Bank(resolution.root).iter_files()
        if _matches(path, soc_version, op_type)
    )  # fmt: skip
    asked = soc_version is not None or op_type is not None
    return ResolveResult(
        reader=reader, tried=tried, resolution=resolution, files=files if asked else (),
        is_found=bool(files) if asked else resolution.exists,
    )  # fmt: skip


def _matches(path: Path, soc_version: str | None, op_type: str | None) -> bool:
    name = find_bank_file_name(path.name)
    if name is None:
        return False
    return soc_version in (None, name.soc_version) and op_type in (None, name.op_type)
