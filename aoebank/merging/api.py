"""Merge banks record by record, and settle what a merge left open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from aoebank.errors import BankNotFoundError, UsageError, shell_word
from aoebank.merging.decisions import Incumbent, MergeRules, Policy, Source, parse_override
from aoebank.model.timing import Times
from aoebank.parameters.context import AnyPath, Names, current_day, make_ratio, names, open_bank
from aoebank.parameters.param import Completes, Param
from aoebank.report.documents import Form, asked_documents

if TYPE_CHECKING:
    from aoebank.merging.document import Settlement
    from aoebank.merging.page import ConflictPage
    from aoebank.merging.run import MergeResult

_HERE = Path()  # messages then name paths as they were given


def merge(
    *sides: Annotated[
        AnyPath,
        Param(
            kind=list[str],
            metavar="A B...",
            completes=Completes.SIDE,
            is_argument=True,
            help="Files or trees: PATH, git:REV[:PATH], snapshot:REF[:ROOT]. A is ours; the "
            "others come into it one after the other.",
        ),
    ],
    output: Annotated[
        AnyPath | None,
        Param(
            kind=str,
            flags=("-o", "--output"),
            metavar="DST",
            help="Where the result goes: a new path, or one of the sides.",
        ),
    ] = None,
    base: Annotated[
        AnyPath | None,
        Param(
            kind=str,
            flags=("-b", "--base"),
            metavar="BASE",
            help="What all sides started from; makes it a three-way merge.",
        ),
    ] = None,
    policy: Annotated[
        Policy | str, Param(kind=Policy, help="Who wins where both changed a key.")
    ] = Policy.KEEP_BEST,
    untimed: Annotated[
        Policy | str,
        Param(
            kind=Policy, help="Policy in the place of keep-best where not both sides have a time."
        ),
    ] = Policy.FAIL,
    noise: Annotated[
        float | str,
        Param(kind=str, metavar="SHARE", help="A gap between two times up to this counts as none."),
    ] = "3%",
    times: Annotated[
        Times | str,
        Param(
            kind=Times,
            help="Compare times of the same known machine (strict), of "
            "that or of machines nobody knows (alike), or any.",
        ),
    ] = Times.ALIKE,
    incumbent: Annotated[
        Incumbent | str,
        Param(kind=Incumbent, help="Who wins inside the noise without a base."),
    ] = Incumbent.OURS,
    override: Annotated[
        Names,
        Param(
            kind=list[str],
            metavar="PATTERN:POLICY",
            help="A policy for some records: soc=, op= or key= and a shell pattern, as in "
            "op=MatMulV3:theirs. Repeatable; the last that fits counts.",
        ),
    ] = (),
    no_containment: Annotated[
        bool, Param(help="A conflict also where one side's edit contains the other's.")
    ] = False,
    no_renames: Annotated[
        bool, Param(help="Take a moved file for a removed and an added one.")
    ] = False,
    drop_worse_than: Annotated[
        AnyPath | None,
        Param(
            kind=Path,
            metavar="DIR",
            help="Leave out records slower than those of this built-in bank.",
        ),
    ] = None,
    allow_other_soc: Annotated[bool, Param(help="Merge banks of different targets.")] = False,
    allow_unrelated: Annotated[
        bool, Param(help="Take a base that has no record in common.")
    ] = False,
    skip_broken: Annotated[bool, Param(help="Leave broken files of a tree as A has them.")] = False,
    dry_run: Annotated[bool, Param(help="Print the decisions, write nothing.")] = False,
    decisions: Annotated[
        AnyPath | None,
        Param(kind=Path, metavar="FILE", help="Save all decisions, to edit them and --apply them."),
    ] = None,
    apply: Annotated[
        AnyPath | None,
        Param(
            kind=Path,
            metavar="FILE",
            help="Apply edited decisions; a conflict file needs no sides.",
        ),
    ] = None,
    all_open: Annotated[
        str | None,
        Param(
            kind=str,
            flags=("--all",),
            metavar="ours|theirs",
            help="With --apply: this side for every conflict nobody decided.",
        ),
    ] = None,
    interactive: Annotated[
        bool,
        Param(
            flags=("-i", "--interactive"),
            help="With --apply of a conflict file: walk through what is open, in the terminal.",
        ),
    ] = False,
    verbose: bool = False,
) -> MergeResult:
    """Merge banks record by record, with a base or without, all or nothing.

    Args:
        sides: Two or more files or trees: a path, `git:REV[:PATH]` or `snapshot:REF[:ROOT]`.
            The first is ours; the others come into it one after the other.
        skip_broken: Leave broken files of a tree as the first side has them, and merge the rest.
        verbose: Return clean decisions as values too, as a dry run does.

    Raises:
        UsageError: arguments contradict each other, or one says what nothing can mean.
        AoebankError: a side cannot be merged, or the result not be written; nothing is changed.
    """
    from aoebank.merging import run
    from aoebank.merging.document import load_verdicts
    from aoebank.merging.sides import find_destination
    from aoebank.merging.versions import find_exclusions
    from aoebank.storage.sides.open import is_stored
    from aoebank.storage.writing.journal import put_back_merge

    if Policy(untimed) is Policy.KEEP_BEST:
        raise UsageError("without times there is no best", where="--untimed", got=untimed)
    rules = MergeRules(
        policy=Policy(policy),
        untimed=Policy(untimed),
        noise_ratio=make_ratio(noise, "--noise"),
        times=Times(times),
        incumbent=Incumbent(incumbent),
        overrides=tuple(map(parse_override, names(override))),
        takes_containing=not no_containment,
        follows_renames=not no_renames,
        may_differ_in_soc=allow_other_soc,
        may_be_unrelated=allow_unrelated,
    )
    if all_open is not None and apply is None:
        raise UsageError("has no meaning without --apply", where="--all", hint="--policy decides")
    if interactive:
        hint = "merge --apply FILE.conflicts -i"
        raise UsageError("has no meaning without a conflict file", where="-i", hint=hint)
    texts = [str(side) for side in sides]
    _demand_sides(texts, output, writes=not dry_run)
    _demand_place(decisions, output)
    if output is not None and not dry_run and not is_stored(str(output)):
        is_a_side = Path(output).resolve() in (Path(text).resolve() for text in texts)
        put_back_merge(Path(output), takes_tree=not is_a_side)
    opened = tuple(open_bank(side, beside=texts[at == 0]) for at, side in enumerate(texts))
    place = find_destination(str(output), opened, cwd=_HERE) if output is not None else None
    request = run.MergeRequest(
        sides=opened,
        base=open_bank(str(base), beside=texts[0]) if base is not None else None,
        rules=rules,
        destination=None if dry_run else place,
        verbose=verbose or dry_run or decisions is not None,
        exclusions=find_exclusions(
            opened,
            output=_path(output),
            built_in=_path(drop_worse_than),
            today=current_day(),
        ),
        skips_broken=skip_broken,
        verdicts=load_verdicts(Path(apply), all_open=_source(all_open))
        if apply is not None
        else {},
    )
    result = run.merge(request)
    if decisions is not None:
        _demand_place(decisions, None)  # the merge may have made a bank file of this name
        _save_decisions(Path(decisions), result)
    return result


def _demand_place(decisions: AnyPath | None, output: AnyPath | None) -> None:
    """Raise where saving decisions would replace something else, or the result."""
    from aoebank.merging.document import DECISIONS
    from aoebank.report.documents import demand_folder, is_document

    if decisions is None:
        return
    path = Path(decisions)
    demand_folder(path)
    if output is not None and path.resolve() == Path(output).resolve():
        raise UsageError("result and decisions in one file", where=str(path))
    if path.exists() and not (path.is_file() and is_document(path, DECISIONS)):
        raise UsageError(
            "would be overwritten, and is no list of decisions",
            where=str(path),
            hint="name another file for --decisions",
        )


def _save_decisions(path: Path, result: MergeResult) -> None:
    from aoebank.merging.document import serialize_decisions
    from aoebank.storage.writing.staged import update_file

    document = serialize_decisions(result.steps, base=result.base, ours=result.sides[0])
    update_file(path, lambda _: document)


def _demand_sides(texts: list[str], output: AnyPath | None, *, writes: bool) -> None:
    if len(texts) < 2:
        raise UsageError(
            "needs two sides or more",
            where="merge",
            got=f"{len(texts)}",
            hint="aoebank merge A B -o DST",
        )
    if writes and output is None:
        raise UsageError(
            "does not say where the result goes",
            where="merge",
            hint=f"-o DST, -o {shell_word(texts[0])} for in place, or --dry-run",
        )


def _path(path: AnyPath | None) -> Path | None:
    return Path(path) if path else None


def _source(side: str | None) -> Source | None:
    """Return the side `--all` names.

    Raises:
        UsageError: it names none.
    """
    if side is None:
        return None
    if side not in (Source.OURS, Source.THEIRS):
        raise UsageError("no such side", where="--all", got=side, expected="ours or theirs")
    return Source(side)


def merge_or_settle(
    *sides: AnyPath, apply: AnyPath | None = None, **options: Any
) -> MergeResult | Settlement | ConflictPage:
    """Merge banks, or settle the conflict file that `apply` names: the command `aoebank merge`.

    Where an HTML page is asked for and nothing decides, the page is one to decide on.

    Raises:
        UsageError: sides, a base or an output are given with a conflict file, or decisions
            without the sides they are about.
        BankNotFoundError: there is no such file.
    """
    from aoebank.storage.tree import CONFLICT_SUFFIX

    if apply is None or not Path(apply).name.endswith(CONFLICT_SUFFIX):
        if apply is not None and not sides:
            _demand_conflict_file(Path(apply), CONFLICT_SUFFIX)
        return merge(*sides, apply=apply, **options)
    if sides or any(options[name] for name in ("output", "base", "decisions")):
        raise UsageError(
            "a conflict file is applied to the bank beside it",
            where="--apply",
            hint="name no sides, base or output",
        )
    names_of = ("all_open", "dry_run", "interactive")
    if asked_documents().has(Form.HTML) and not any(options[name] for name in names_of):
        from aoebank.merging.page import make_conflict_page

        return make_conflict_page(Path(apply))
    return settle(apply, **{name: options[name] for name in names_of})


def _demand_conflict_file(path: Path, suffix: str) -> None:
    """Raise for a file that cannot be applied without sides."""
    if not path.exists():
        raise BankNotFoundError("no such file", path=path, expected=f"a {suffix} file")
    conflicts = path.with_name(path.name + suffix)
    words = shell_word(conflicts) if conflicts.exists() else f"{shell_word(path)} A B -o DST"
    raise UsageError(
        "no sides are given",
        where="--apply",
        got=str(path),
        expected=f"a {suffix} file, or decisions and the sides they are about",
        hint=f"aoebank merge --apply {words}",
    )


def settle(
    file: AnyPath,
    *,
    all_open: str | None = None,
    dry_run: bool = False,
    interactive: bool = False,
) -> Settlement:
    """Bring a bank to what a person chose in the conflict file a merge left beside it.

    Args:
        file: The conflict file, edited.
        all_open: `ours` or `theirs` for every conflict still open in it.
        dry_run: Tell what would become of it, write nothing.
        interactive: Ask about each conflict that is still open, in the terminal.

    Raises:
        UsageError: there is no terminal to ask in.
        BankNotFoundError: the conflict file or its bank is not there.
        BankFormatError: it is no conflict file, or not as it was written.
        HistoryError: the bank has other records by now.
    """
    from aoebank.merging import document as verb

    choose = None
    if interactive:
        from aoebank.merging.walk import walk_at_terminal

        choose = walk_at_terminal().choose
    return verb.settle(
        Path(file),
        today=current_day(),
        all_open=_source(all_open),
        is_dry_run=dry_run,
        choose=choose,
    )
