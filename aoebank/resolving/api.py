"""Find which bank directories and files each reader would use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoebank.errors import UsageError
from aoebank.model.resolution import Query, Reader
from aoebank.parameters.context import AnyPath
from aoebank.parameters.param import Param
from aoebank.storage.readers.environment import current_environment, surroundings

if TYPE_CHECKING:
    from aoebank.resolving.run import ResolveResult, WantedWorkload


def resolve(
    *,
    soc: Annotated[
        str | None, Param(kind=str, metavar="SOC", help="Only files of this soc_version.")
    ] = None,
    core_num: Annotated[
        int | None,
        Param(
            kind=int,
            least=0,
            most=999_999_999,
            metavar="N",
            help="Only files for this number of cores.",
        ),
    ] = None,
    op: Annotated[
        str | None, Param(kind=str, metavar="OP_TYPE", help="Only files of this op_type.")
    ] = None,
    reader: Annotated[
        Reader | str | Iterable[Reader | str],
        Param(
            kind=list[Reader],
            metavar="READER",
            help=f"Whose rules to follow: {', '.join(Reader)}. May be given again.",
        ),
    ] = (),
    writer: Annotated[bool, Param(help="Ask all writers instead of all readers.")] = False,
    op_bank_path: Annotated[
        AnyPath | None, Param(kind=str, help="As --op_bank_path of a conversion.")
    ] = None,
    mdl_bank_path: Annotated[
        AnyPath | None, Param(kind=str, help="As --mdl_bank_path of a conversion.")
    ] = None,
    opp_path: Annotated[AnyPath | None, Param(kind=str, help="Instead of ASCEND_OPP_PATH.")] = None,
    shape: Annotated[
        str | None,
        Param(kind=str, metavar="JSON", help="Which record this info_dict would get."),
    ] = None,
    record: Annotated[
        AnyPath | None,
        Param(kind=Path, metavar="FILE", help="The same for the record in a file."),
    ] = None,
) -> ResolveResult:
    """Return which bank directories and files each reader would use, and why.

    Raises:
        UsageError: arguments contradict each other, or cannot be part of a file name.
    """
    from aoebank.resolving import run

    _demand_names(soc=soc, op=op)
    readers = (reader,) if isinstance(reader, str) else tuple(reader)
    if writer and readers:
        raise UsageError("--writer and --reader: both given", expected="one of them")
    around = surroundings(
        env=current_environment(),
        cwd=Path.cwd(),
        op_bank_path=_text(op_bank_path),
        mdl_bank_path=_text(mdl_bank_path),
        opp_path=_text(opp_path),
    )
    return run.resolve(
        around=around,
        query=Query(soc_version=soc, core_num=core_num, op_type=op),
        readers=tuple(map(Reader, readers)),
        writers=writer,
        workload=_workload(shape, record, op),
    )


def _workload(shape: str | None, record: AnyPath | None, op: str | None) -> WantedWorkload | None:
    from aoebank.resolving.run import workload_from_file, workload_from_text

    if shape is not None and record is not None:
        raise UsageError("--shape and --record: both given", expected="one of them")
    if record is not None:
        return workload_from_file(Path(record))
    return workload_from_text(shape, op_type=op) if shape is not None else None


def _demand_names(**given: str | None) -> None:
    for option, name in given.items():
        if name is not None and (not name or "/" in name or name.startswith(".")):
            raise UsageError(f"--{option}: no part of a file name", got=repr(name))


def _text(path: AnyPath | None) -> str | None:
    return None if path is None else str(path)
