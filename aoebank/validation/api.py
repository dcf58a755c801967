"""Check banks, mend what is safe to mend, and explain what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoebank.errors import BankNotFoundError, BankPathError, UsageError
from aoebank.model.codes import FixClass
from aoebank.parameters.context import (
    AnyPath,
    Names,
    Paths,
    bank_in_use,
    current_day,
    make_filter,
    names,
    open_bank,
    paths_of,
)
from aoebank.parameters.param import BANK_PATHS, BANK_SIDE, BUILT_IN, OP, SOC, Completes, Param
from aoebank.storage.readers.environment import current_environment

if TYPE_CHECKING:
    from aoebank.formats.release import Release
    from aoebank.model.record import Record
    from aoebank.validation.baseline import Check
    from aoebank.validation.explain import Explanation
    from aoebank.validation.fix import FixOutcome
    from aoebank.validation.run import ValidateResult
    from aoebank.validation.source import DiskFiles
    from aoebank.validation.stale import SourceOf, StaleResult


def validate(
    paths: Annotated[
        Paths,
        Param(
            kind=list[str],
            metavar="PATH...",
            is_argument=True,
            help="Bank files or trees, git:REV[:PATH] or snapshot:REF[:ROOT].",
            completes=Completes.SIDE,
        ),
    ],
    *,
    select: Annotated[
        Names,
        Param(
            kind=list[str],
            metavar="CODE",
            completes=Completes.CODE,
            help="Report only these codes, or codes that start like this.",
        ),
    ] = (),
    ignore: Annotated[
        Names,
        Param(
            kind=list[str],
            metavar="CODE",
            completes=Completes.CODE,
            help="Leave these out; of --select and --ignore the longer one decides.",
        ),
    ] = (),
    built_in: Annotated[AnyPath | None, BUILT_IN] = None,
    baseline: Annotated[
        AnyPath | None,
        Param(
            kind=str,
            metavar="git:REV|FILE",
            help="Only findings that this revision, or this --json document, does not have.",
        ),
    ] = None,
    reader: Annotated[
        str,
        Param(
            kind=str,
            metavar="NAME|git:REV|FILE",
            help="Release that reads the runtime banks; by default headers or fields tell.",
        ),
    ] = "",
    strategy_problem: Callable[[Record], str] | None = None,
) -> ValidateResult:
    """Return everything that is wrong with bank files and trees.

    Args:
        paths: A bank file or tree, `git:REV`, `git:REV:PATH`, `snapshot:REF` or
            `snapshot:REF:ROOT`, or several; a path that is not there is a finding.
        baseline: `git:REV`, or a file with what `aoebank validate --json` wrote: only findings
            it does not have are returned.
        reader: Release that reads the runtime banks, as in `cann-9.1.0`; `git:REV` of the source
            of the operators; or a file of `aoebank schema import`. By default the headers in
            the repository of the banks tell, else the fields of the records.
        strategy_problem: Tells why an engine cannot replay its strategy in a record; None: as
            the installed engine tells it.

    Raises:
        UsageError: there are no such codes, or no such reader.
        BankNotFoundError: there is no such built-in bank, or no such baseline.
        HistoryError: there is no such revision.
    """
    from aoebank.storage.sides.open import is_stored
    from aoebank.validation import run
    from aoebank.validation.baseline import find_new, open_baseline
    from aoebank.validation.built_in import find_built_in
    from aoebank.validation.selection import parse_selection

    selection = parse_selection(names(select), names(ignore))
    directory = Path(built_in) if built_in is not None else None
    tier = find_built_in(directory, env=current_environment(), cwd=Path.cwd())
    today, judge = current_day(), _reader(reader) if reader else None

    def check(
        asked: list[Path], own: Release | None = None, files: DiskFiles | None = None
    ) -> ValidateResult:
        return run.validate(
            asked,
            selection=selection,
            built_in=tier,
            today=today,
            reader=judge or own,
            strategy_problem=strategy_problem or _ask_engine,
            files=files,
        )

    asked = paths_of(paths)
    if any(is_stored(str(path)) for path in asked):
        return _validate_stored([*map(str, asked)], check, baseline)
    result = check(asked)
    if baseline is None:
        return result
    known = open_baseline(str(baseline), paths=asked, result=result, built_in=tier, today=today)
    return find_new(result, known)


def _ask_engine(record: Record) -> str:
    """Return why the installed engine cannot replay a strategy; loaded when first asked."""
    check = _installed_check()
    return "" if check is None else check(record)


@cache
def _installed_check() -> Callable[[Record], str] | None:
    from aoebank.storage.machine import strategy_problem_of

    return strategy_problem_of()


def _validate_stored(texts: list[str], check: Check, baseline: AnyPath | None) -> ValidateResult:
    """Check banks of which a revision or a snapshot is one."""
    from aoebank.storage.sides.open import is_stored
    from aoebank.validation.baseline import (
        check_stored,
        find_new,
        open_document,
        open_stored_baseline,
    )

    root = partial(bank_in_use, None)
    result = check_stored(texts, check, default_root=root)
    if baseline is None:
        return result
    if is_stored(str(baseline)):
        known = open_stored_baseline(str(baseline), texts, check, default_root=root)
    else:
        known = open_document(Path(baseline))
    return find_new(result, known)


def fix(
    paths: Paths,
    *,
    select: Names = (),
    ignore: Names = (),
    fix_class: FixClass | str | Iterable[FixClass | str] = (),
    dry_run: bool = False,
) -> tuple[FixOutcome, ...]:
    """Mend what is safe to mend, as `aoebank validate --fix` does; one outcome per file.

    Args:
        paths: A bank file or tree, or several.
        select: Only what mends one of these codes.
        ignore: Nothing that mends these.
        fix_class: Only these classes of fixes. By default those that mend what disturbs readers
            (bom, crlf, blank) and those that mend a code in `select`.
        dry_run: Return what would be changed, write nothing.
    """
    chosen = (fix_class,) if isinstance(fix_class, str) else tuple(fix_class)
    classes = tuple(map(FixClass, chosen))
    return _fix(paths, names(select), names(ignore), classes, dry_run=dry_run, closed=[])


def _fix(
    paths: Paths,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    classes: tuple[FixClass, ...],
    *,
    dry_run: bool,
    closed: list[BankPathError],
) -> tuple[FixOutcome, ...]:
    """Mend files, or tell what would be done; what cannot be read goes to `closed`."""
    from aoebank.storage.sides.open import is_stored
    from aoebank.validation.fix import FixOutcome, apply_fixes, plan_fixes
    from aoebank.validation.selection import parse_selection

    for path in paths_of(paths):
        if is_stored(str(path)):
            raise UsageError("what is stored cannot be mended", where="--fix", got=str(path))
    planned = plan_fixes(
        paths_of(paths),
        selection=parse_selection(select, ignore),
        classes=classes or None,
        closed=closed,
    )
    if dry_run:
        return tuple(FixOutcome(fix=plan, is_written=False) for plan in planned)
    return tuple(apply_fixes(planned))


def fmt(
    paths: Annotated[Paths, BANK_PATHS],
    *,
    check: Annotated[
        bool, Param(help="Write nothing; exit with 1 if a file is not in this form.")
    ] = False,
) -> tuple[FixOutcome, ...]:
    """Write bank files as their tuner would; one outcome for each that is in another form.

    Marks and line ends that only disturb go, records are sorted by key where their order means
    nothing, and their text is the writer's. Every answer stays what it was: a file of which that
    is not sure (broken, or with a key twice) keeps its order and text, and `validate` tells.

    A file that cannot be read has an outcome with the error.

    Raises:
        BankNotFoundError: a path is not there.
    """
    from aoebank.storage.tree import demand_bank_file
    from aoebank.validation.fix import unreadable

    for path in paths_of(paths):
        if not path.exists():
            raise BankNotFoundError("no such file or directory", path=path)
        demand_bank_file(path)
    form = (FixClass.BOM, FixClass.CRLF, FixClass.BLANK, FixClass.ORDER, FixClass.TEXT)
    closed: list[BankPathError] = []
    outcomes = _fix(paths, (), (), form, dry_run=check, closed=closed)
    return (*outcomes, *map(unreadable, closed))


def explain(
    codes: Annotated[
        Names,
        Param(
            kind=list[str],
            metavar="[CODE]...",
            is_argument=True,
            help="Finding codes, or how they start.",
            completes=Completes.CODE,
        ),
    ] = (),
) -> tuple[Explanation, ...]:
    """Return the explanations of finding codes: meaning, importance, way out; all by default.

    Raises:
        UsageError: no code starts like this.
    """
    from aoebank.validation.explain import explain as verb

    return verb(names(codes))


def schema_list() -> tuple[Release, ...]:
    """Return the releases `validate` knows as readers of runtime banks, the newest first."""
    from aoebank.formats.releases import known_releases

    return known_releases()


def schema_import(
    revision: Annotated[
        str,
        Param(
            kind=str,
            metavar="git:REV",
            is_argument=True,
            help="Revision of the operators' source.",
        ),
    ],
    *,
    name: Annotated[str, Param(kind=str, help="Of the release; default git:REV.")] = "",
    beside: AnyPath = ".",
) -> Release:
    """Return the release a revision of the operators' source is, from its tiling headers.

    Args:
        beside: Anywhere in the work tree.

    Raises:
        HistoryError: there is no such revision, or no header in it.
        BankFormatError: a header is not written as they all are.
    """
    from aoebank.validation import schema

    return schema.import_release(revision.removeprefix(schema.GIT), cwd=Path(beside), name=name)


def _reader(text: str) -> Release:
    from aoebank.validation.schema import get_release

    return get_release(text, cwd=Path.cwd())


def stale(
    path: Annotated[AnyPath | None, BANK_SIDE] = None,
    *,
    soc: Annotated[Names, SOC] = (),
    op: Annotated[Names, OP] = (),
    now: Mapping[str, str] | None = None,
    source_of: SourceOf | None = None,
) -> StaleResult:
    """Return the records that were measured in another environment than the present one.

    Nothing is measured, and no library of the engine is loaded.

    Args:
        path: A bank file or tree, `git:REV`, `git:REV:PATH`, `snapshot:REF` or
            `snapshot:REF:ROOT`; by default the bank you are in, else the
            environment's.
        now: Environment to compare with, as `present_facts` tells it; None: the present one.
        source_of: Tells the kernel source of a record; None: as the installed engine tells it.

    Returns:
        Those that must not be used (another target, kernels made another way), then those to be
        checked again (other versions, another CPU, nobody noted where), each with the reasons.

    Raises:
        BankNotFoundError: there is no such path.
        HistoryError: there is no such revision or snapshot.
    """
    from aoebank.storage.machine import kernel_source_of, present_facts
    from aoebank.validation.stale import find_stale

    side = open_bank(path)
    return find_stale(
        side,
        now=present_facts() if now is None else now,
        source_of=source_of or kernel_source_of(),
        wanted=make_filter(soc, op),
    )
