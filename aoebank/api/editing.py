"""Change fields of strategies in many records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aoebank.api.surroundings import AnyPath, Names, names

if TYPE_CHECKING:
    from aoebank.model.json_value import JsonValue
    from aoebank.ops.edit.run import EditResult


def edit(
    paths: AnyPath | Iterable[AnyPath],
    *,
    op: str,
    assign: Mapping[str, JsonValue] | Names = (),
    unset: Names = (),
    where: Mapping[str, JsonValue] | Names = (),
    soc: Names = (),
    reader: str = "",
    allow: Names = (),
    dry_run: bool = False,
) -> EditResult:
    """Set or unset fields in all records of an operator; all files or none, nothing else moves.

    Args:
        paths: A bank file or tree, or several.
        op: The operator type.
        assign: New values by field of the strategy, or texts such as `stepM=2`.
        unset: Fields that go.
        where: Only records with these values, by field of the strategy or the workload; a name
            that both have starts with `knowledge.` or `info_dict.`.
        soc: Only these targets; patterns as in a shell.
        reader: Release whose fields count, as for `validate`; by default fields in the files tell.
        allow: Fields to set though the reader does not know them, or to unset though it needs them.
        dry_run: Tell what would be changed, write nothing.

    Raises:
        UsageError: the reader does not know a field, or takes no such value.
        BankNotFoundError: a path is not there, or no file has records of the operator.
        AoebankError: a file is broken or cannot be written; nothing is changed.
    """
    from aoebank.ops.edit import run
    from aoebank.ops.edit.request import EditRequest, parse_values
    from aoebank.ops.schema import get_release

    asked = (paths,) if isinstance(paths, str | Path) else tuple(paths)
    request = EditRequest(
        paths=tuple(map(Path, asked)),
        op=op,
        assign=assign if isinstance(assign, Mapping) else parse_values(names(assign), "--set"),
        unset=names(unset),
        where=where if isinstance(where, Mapping) else parse_values(names(where), "--where"),
        soc=names(soc),
        allow=names(allow),
        reader=get_release(reader, cwd=Path.cwd()) if reader else None,
        is_dry_run=dry_run,
    )
    return run.edit(request)
