"""Change fields of strategies in many records, and take records out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoebank.errors import UsageError
from aoebank.model.json_value import JsonValue
from aoebank.parameters.context import (
    AnyPath,
    Names,
    Paths,
    current_day,
    names,
    open_bank,
    paths_of,
)
from aoebank.parameters.param import BANK_PATHS, BUILT_IN, DRY_RUN, Param

if TYPE_CHECKING:
    from aoebank.editing.edit import EditResult
    from aoebank.editing.prune import PruneResult, RecordJudge


def edit(
    paths: Annotated[Paths, BANK_PATHS],
    *,
    op: Annotated[str, Param(kind=str, metavar="OP_TYPE", help="Records of this operator type.")],
    assign: Annotated[
        Mapping[str, JsonValue] | Names,
        Param(
            kind=list[str],
            flags=("--set",),
            metavar="FIELD=VALUE",
            help="Set this field of their strategies, or add it; may be given again.",
        ),
    ] = (),
    unset: Annotated[
        Names, Param(kind=list[str], metavar="FIELD", help="Take this field out.")
    ] = (),
    where: Annotated[
        Mapping[str, JsonValue] | Names,
        Param(
            kind=list[str],
            metavar="FIELD=VALUE",
            help="Only records whose strategy or workload has this value; all that are given hold.",
        ),
    ] = (),
    soc: Annotated[Names, Param(kind=list[str], metavar="GLOB", help="Only these targets.")] = (),
    reader: Annotated[
        str,
        Param(
            kind=str,
            metavar="NAME|git:REV|FILE",
            help="Release whose fields count; by default fields in the files tell.",
        ),
    ] = "",
    allow: Annotated[
        Names,
        Param(
            kind=list[str],
            metavar="FIELD",
            help="Set this field though the reader does not know it, or unset it though it is "
            "needed.",
        ),
    ] = (),
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> EditResult:
    """Set or unset fields in all records of an operator; all files or none, nothing else moves.

    Args:
        where: Only records with these values, by field of the strategy or the workload; a name
            that both have starts with `knowledge.` or `info_dict.`.
        soc: Only these targets; patterns as in a shell.

    Raises:
        UsageError: the reader does not know a field, or takes no such value.
        BankNotFoundError: a path is not there, or no file has records of the operator.
        AoebankError: a file is broken or cannot be written; nothing is changed.
    """
    from aoebank.editing import edit as run
    from aoebank.editing.edit import EditRequest, parse_values
    from aoebank.validation.schema import get_release

    request = EditRequest(
        paths=tuple(paths_of(paths)),
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


def prune(
    paths: Annotated[Paths, BANK_PATHS],
    *,
    shadowed: Annotated[
        bool, Param(help="Records whose key comes again, where readers look first.")
    ] = False,
    slower: Annotated[bool, Param(help="Records slower than the built-in one they hide.")] = False,
    quarantined: Annotated[bool, Param(help="Records the quarantine keeps out.")] = False,
    unused: Annotated[
        Paths,
        Param(
            kind=list[Path],
            metavar="LOG",
            help="Records no look-up in these logs has found, as `aoebank hits` reads them.",
        ),
    ] = (),
    built_in: Annotated[AnyPath | None, BUILT_IN] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> PruneResult:
    """Take records out of banks that nobody is served by; all files or none.

    Args:
        unused: Records no look-up in these logs has found; see `hits`. Without any of the four,
            the first two are meant.

    Raises:
        UsageError: the logs do not tell which records were found.
        BankNotFoundError: a path is not there.
        BankPathError: a file cannot be read or written; nothing is changed.
    """
    from aoebank.editing import prune as run
    from aoebank.reading.hits import hits
    from aoebank.storage.readers.environment import current_environment
    from aoebank.validation.built_in import find_built_in

    banks, logs = paths_of(paths), paths_of(unused)
    is_default = not (shadowed or slower or quarantined or logs)
    judges: list[RecordJudge] = []
    if shadowed or is_default:
        judges.append(run.ShadowedJudge())
    if slower or is_default or built_in is not None:
        place = Path(built_in) if built_in is not None else None
        tier = find_built_in(place, env=current_environment(), cwd=Path.cwd())
        if slower and tier.root is None:
            raise UsageError(
                "--slower: no built-in bank to compare with",
                expected="--built-in DIR, or ASCEND_OPP_PATH",
            )
        judges.append(run.SlowerJudge(tier))
    if quarantined:
        judges.append(run.QuarantinedJudge(banks, current_day()))
    if logs:
        judges.append(run.UnusedJudge(hits(logs, [open_bank(bank) for bank in banks])))
    return run.prune(banks, judges, is_dry_run=dry_run)
