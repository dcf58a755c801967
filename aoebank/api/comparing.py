"""Compare two sides, and show one file as git would."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aoebank.api.invocation_context import AnyPath, Names, make_filter, make_ratio, open_bank

if TYPE_CHECKING:
    from aoebank.ops.diff import DiffResult


def diff(
    a: AnyPath = "git:HEAD",
    b: AnyPath = ".",
    *,
    noise: float | str = "3%",
    soc: Names = (),
    op: Names = (),
    key: Names = (),
    weights: AnyPath | Mapping[str, float] | None = None,
    no_renames: bool = False,
    fields: bool = True,
) -> DiffResult:
    """Compare two bank files or trees, record by record.

    Args:
        a: Old side: a path, `git:REV`, `git:REV:PATH`, `snapshot:REF` or `snapshot:REF:ROOT`.
        b: New side, written likewise; by default the banks below the current directory.
        noise: Times this close are the same: 0.03 or `3%`; a wider recorded spread counts.
        soc: Only these targets; patterns as in a shell, as for `op` and `key`.
        op: Only these op_types.
        key: Only these keys, or keys that start like this.
        weights: How often each key is used, or a JSON file that says so.
        no_renames: Do not look for files with another name in `b`.
        fields: Whether to tell which members of a strategy changed.

    Raises:
        BankNotFoundError: a path is not there.
        HistoryError: a revision, snapshot or tag is not, or nothing of that path is in it.
        UsageError: `noise` or `weights` is not what it has to be.
    """
    from aoebank.ops import diff as verb
    from aoebank.ops.diff.weights import load_weights

    options = verb.DiffOptions(
        noise_ratio=make_ratio(noise, "--noise"),
        only=make_filter(soc, op, key),
        weights=load_weights(Path(weights)) if isinstance(weights, str | Path) else weights,
        has_renames=not no_renames,
        has_fields=fields,
    )
    return verb.diff(open_bank(a, beside=b), open_bank(b, beside=a), options)


def textconv(file: AnyPath) -> str:
    """Return a bank file as text, one line per member, as git shows it in diffs.

    Raises:
        BankNotFoundError: there is no such file.
    """
    from aoebank.report.git import textconv as rendering
    from aoebank.storage.bank import load_file

    return rendering.textconv(load_file(Path(file)))
