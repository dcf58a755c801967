"""Check bank files and trees; all findings in one run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from aoebank.errors import BankFormatError, BankPathError, RecordError, shell_word
from aoebank.formats.names import RUNTIME_SUFFIX, parse_operator_name
from aoebank.formats.plausibility import TimeCheck
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.provenance import bank_file_of, parse_provenance
from aoebank.formats.release import NEWEST, Release, ReleaseGuess
from aoebank.formats.releases import guess_release
from aoebank.model.codes import Severity
from aoebank.model.display import RichDisplay
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.quarantine import Quarantine, QuarantineEntry
from aoebank.model.record import Record
from aoebank.selection import NameParts, parts_of
from aoebank.storage.quarantine import find_entry, quarantine_path
from aoebank.storage.tree import FileKind, TreeEntry
from aoebank.validation.built_in import BuiltInBank
from aoebank.validation.schema import find_own_release
from aoebank.validation.selection import Selection
from aoebank.validation.siblings import SiblingCheck
from aoebank.validation.source import DiskFiles
from aoebank.validation.targets import TargetCheck
from aoebank.validation.tree import check_entry, check_name, check_side_car, is_foreign


class QuarantineCheck:
    """The quarantines of the banks checked, each read when a file of its bank is.

    Args:
        today: Entries whose last day is before it do not hold; None: all hold.
        files: Where they are read.
    """

    def __init__(self, today: date | None, files: DiskFiles) -> None:
        self._today = today or date.min
        self._files = files
        self._roots: dict[Path, Path | None] = {}
        self._loaded: dict[Path, Quarantine] = {}
        self._unreadable: list[Finding] = []

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield a finding per record of a file that should not be there."""
        quarantine = self._of(parsed.path)
        if not len(quarantine):
            return
        for number, key in enumerate(parsed.keys):
            entry = find_entry(parsed, number, quarantine, today=self._today)
            if entry is not None and parsed.find(key) == number:
                yield _kept_in(parsed, number, entry)

    def findings(self) -> Iterator[Finding]:
        """Yield the problems of the quarantines themselves."""
        yield from self._unreadable
        for root, quarantine in self._loaded.items():
            targets = [*map(parts_of, self._files.iter_banks(root))] if len(quarantine) else []
            for entry in quarantine:
                yield from self._stale(entry, targets)

    def _of(self, path: Path) -> Quarantine:
        folder = path.parent
        if folder not in self._roots:
            self._roots[folder] = root = self._files.find_quarantine_root(folder)
            if root is not None and root not in self._loaded:
                self._loaded[root] = self._load(root)
        root = self._roots[folder]
        return self._loaded[root] if root is not None else Quarantine()

    def _load(self, root: Path) -> Quarantine:
        try:
            return self._files.load_quarantine(root)
        except BankFormatError as error:
            place = Location(path=quarantine_path(root), line=error.line, column=error.column)
            self._unreadable.append(make_finding("AB515", place, error.problem, hint=error.hint))
        except BankPathError as error:
            place = Location(path=quarantine_path(root))
            self._unreadable.append(make_finding("AB515", place, error.problem, hint=error.hint))
        return Quarantine()

    def _stale(self, entry: QuarantineEntry, targets: list[NameParts]) -> Iterator[Finding]:
        place, key = entry.location, shell_word(entry.key)
        assert place is not None  # it was read from a file
        if not entry.is_active(self._today):
            yield make_finding(
                "AB514",
                place,
                "quarantine entry is expired",
                got=f"until {entry.until}",
                hint=f"aoebank quarantine rm {key}, or add it again with a later day",
            )
        elif not any(_may_hold(entry, parts) for parts in targets):
            yield make_finding(
                "AB514",
                place,
                "quarantine entry is for nothing the bank has",
                got=f"{entry.soc_version or 'any soc_version'}, {entry.op_type or 'any op_type'}",
                hint=f"mend the names, or aoebank quarantine rm {key} if it is for good",
            )


def _may_hold(entry: QuarantineEntry, parts: NameParts) -> bool:
    """True if a record the entry names could lie in a file, as its path tells."""
    is_any = entry.soc_version is None or parts.has_target_in_rows
    if not is_any and entry.soc_version not in parts.soc_versions:
        return False
    return None in (entry.op_type, parts.op_type) or entry.op_type == parts.op_type


def _kept_in(parsed: ParsedFile, number: int, entry: QuarantineEntry) -> Finding:
    return make_finding(
        "AB513",
        parsed.format.record(parsed, number).location or Location(path=parsed.path),
        "record is in quarantine",
        got=_words(entry),
        hint=f"remove the record, or aoebank quarantine rm {shell_word(entry.key)} if it is good "
        "after all",
    )


def _words(entry: QuarantineEntry) -> str:
    ticket = f", {entry.ticket}" if entry.ticket else ""
    return f"{entry.reason}{ticket}"


_ENGINE_MEMBER = b'"engine"'  # what a strategy names its engine by
_NO_STRATEGY = "engine cannot replay the strategy and takes the record for a miss"
_NO_TIME = "measured time is not plausible"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ValidateResult(RichDisplay):
    """Everything found, sorted by place, and what was looked at."""

    shown_by = "aoebank.validation.report:ValidateReport"
    rows_in = "findings"

    findings: tuple[Finding, ...]
    checked: tuple[Path, ...]  # Files looked at, in the order met
    records: int
    missing: tuple[Path, ...] = ()  # Paths asked for that are not there
    passed_over: int = 0  # How many files of the trees have nothing to do with a bank
    known: int = 0  # How many findings a baseline has too; they are not among `findings`
    reader: Release = NEWEST  # Release whose reader judged the runtime banks
    # How sure the release is, where neither a person nor headers beside the banks told.
    guess: ReleaseGuess | None = field(default_factory=ReleaseGuess)

    @property
    def is_guessed(self) -> bool:
        """True if fields in the banks told the release."""
        return self.guess is not None

    @property
    def files(self) -> int:
        """Number of files that were looked at."""
        return len(self.checked)

    def count(self, severity: Severity) -> int:
        """Return the number of findings of this severity."""
        return sum(finding.severity is severity for finding in self.findings)


@dataclass(slots=True)
class _Run:
    files: DiskFiles
    built_in: BuiltInBank
    quarantine: QuarantineCheck
    reader: Release
    siblings: SiblingCheck
    targets: TargetCheck
    strategy_problem: Callable[[Record], str] | None
    findings: list[Finding] = field(default_factory=list)
    checked: list[Path] = field(default_factory=list)
    missing: list[Path] = field(default_factory=list)
    strays: list[TreeEntry] = field(default_factory=list)
    companions: set[Path] = field(default_factory=set)
    records: int = 0


def validate(
    paths: Iterable[Path],
    *,
    selection: Selection | None = None,
    built_in: BuiltInBank | None = None,
    today: date | None = None,
    reader: Release | None = None,
    strategy_problem: Callable[[Record], str] | None = None,
    files: DiskFiles | None = None,
) -> ValidateResult:
    """Return the findings of files and of all files below directories.

    Args:
        selection: Codes to report; all by default.
        built_in: Bank the records checked would hide when installed beside it.
        today: Day by which quarantine entries expire; None: none does.
        reader: Release that reads the runtime banks; None: what fields in them tell.
        strategy_problem: Tells why the engine a strategy names cannot use it.
        files: Where they are read.
    """
    files = files or DiskFiles()
    asked, missing = tuple(paths), list[Path]()
    entries = [*files.iter_entries(asked, missing)]
    own = None if reader is not None else _find_own_release(entries, files)
    guess = None if reader or own else guess_release(_runtime_banks(entries, files))
    judge = reader or own or (guess.release if guess else NEWEST)
    run = _Run(
        files,
        built_in or BuiltInBank(None),
        QuarantineCheck(today, files),
        judge,
        SiblingCheck(entries, files),
        TargetCheck(entries),
        strategy_problem,
        missing=missing,
    )
    for entry in entries:
        if entry.kind is not FileKind.LINK:
            run.checked.append(entry.path)
        try:
            _check(entry, run)
        except (BankPathError, OSError) as error:
            run.findings.append(_unreadable(entry.path, error))
    passed_over = set()
    for stray in run.strays:
        if stray.path in run.companions:
            continue
        if stray.path in asked:
            run.findings += check_entry(stray, is_named=True)
        elif is_foreign(stray):
            passed_over.add(stray.path)
        else:
            run.findings += check_entry(stray)
    run.findings += _tree_findings(run)
    findings = (selection or Selection()).keep(run.findings)
    findings.sort(
        key=lambda finding: (str(finding.location.path), finding.location.start, finding.code)
    )
    return ValidateResult(
        findings=tuple(findings),
        checked=tuple(path for path in run.checked if path not in passed_over),
        records=run.records,
        missing=tuple(run.missing),
        passed_over=len(passed_over),
        reader=judge,
        guess=guess,
    )


def _runtime_banks(entries: Iterable[TreeEntry], files: DiskFiles) -> Iterator[tuple[str, bytes]]:
    """Yield operator and content of each runtime bank, as its name tells."""
    for entry in entries:
        name = parse_operator_name(entry.path.name, RUNTIME_SUFFIX)
        if entry.kind is FileKind.BANK and name is not None and name.op_type:
            with suppress(BankPathError):  # the check tells
                yield name.op_type, files.read(entry.path) or b""


def _find_own_release(entries: Iterable[TreeEntry], files: DiskFiles) -> Release | None:
    """Return the release whose headers lie in the repository of the runtime banks, if one is."""
    banks = (
        entry.path
        for entry in entries
        if entry.kind is FileKind.BANK
        and not files.is_stored(entry.path)
        and parse_operator_name(entry.path.name, RUNTIME_SUFFIX)
    )
    return find_own_release(banks)


def check_bank(parsed: ParsedFile, reader: Release = NEWEST) -> Iterator[Finding]:
    """Yield everything wrong inside one bank file, as bad as it is for its readers."""
    for finding in (*parsed.findings, *parsed.format.read_by(reader).check(parsed)):
        if finding.code in parsed.format.fatal_codes:
            yield replace(finding, severity=Severity.ERROR)
        else:
            yield finding


def check_records(
    parsed: ParsedFile, strategy_problem: Callable[[Record], str] | None = None
) -> Iterator[Finding]:
    """Yield the implausible times and strategies of records that readers can use.

    Args:
        strategy_problem: Tells why its engine cannot use a strategy; empty if it can.
    """
    engine = strategy_problem if _ENGINE_MEMBER in parsed.data else None
    if not parsed.format.keeps_times and engine is None:
        return
    times = TimeCheck(parsed)
    for number in range(len(parsed)):
        try:
            record = parsed.format.record(parsed, number)
        except RecordError:
            continue  # told already
        times.add(number, record)
        problem = engine(record) if engine is not None else ""
        if problem:
            hint = "tune the workload again, or remove the record"
            yield _finding(parsed, number, "AB410", _NO_STRATEGY, problem, hint)
    for number, problem in times.problems():
        hint = "tune the workload again, or store -1 for no time"
        yield _finding(parsed, number, "AB409", _NO_TIME, problem, hint)


def _finding(
    parsed: ParsedFile, number: int, code: str, message: str, got: str, hint: str
) -> Finding:
    place = parsed.lines.location(parsed.path, parsed.starts[number], parsed.ends[number])
    return make_finding(code, place, message, got=got, hint=hint)


def _check(entry: TreeEntry, run: _Run) -> None:
    if entry.kind is FileKind.SIDE_CAR:
        run.findings += _side_car(entry.path, run.files)
    elif entry.kind is FileKind.BANK:
        parsed = run.files.load(entry.path)
        run.records += len(parsed)
        run.findings += (_with_key(finding, parsed) for finding in check_bank(parsed, run.reader))
        checked = check_records(parsed, run.strategy_problem)
        run.findings += (_with_key(finding, parsed) for finding in checked)
        run.findings += check_name(parsed)
        run.siblings.add(parsed)
        run.targets.add(parsed)
        run.findings += _companion(parsed, run)
        run.findings += (_with_key(finding, parsed) for finding in run.built_in.check(parsed))
        run.findings += (_with_key(finding, parsed) for finding in run.quarantine.check(parsed))
    else:
        run.strays.append(entry)


def _with_key(finding: Finding, parsed: ParsedFile) -> Finding:
    """Return a finding of a file with the key of the record it is in, if it is in one."""
    place = finding.location.start
    number = bisect_right(parsed.starts, place) - 1
    if not finding.location.line or number < 0 or place >= parsed.ends[number]:
        return finding
    return replace(finding, key=parsed.keys[number])


def _companion(parsed: ParsedFile, run: _Run) -> Iterator[Finding]:
    companion = parsed.format.companion(parsed.path)
    if companion is None:
        return
    run.companions.add(companion)
    try:
        data = run.files.read(companion)
    except BankPathError as error:
        yield _unreadable(companion, error)
        return
    yield from parsed.format.check_companion(parsed, data)


def _side_car(path: Path, files: DiskFiles) -> Iterator[Finding]:
    log = parse_provenance(files.read(path) or b"", path)
    yield from log.findings
    bank_file = bank_file_of(path)
    with suppress(BankPathError):  # the check of that one tells
        bank = files.load(bank_file) if files.read(bank_file) is not None else None
        yield from check_side_car(path, log, bank)


def _tree_findings(run: _Run) -> Iterator[Finding]:
    for path in run.missing:
        yield make_finding("AB501", Location(path=path), "no such file or directory")
    yield from run.built_in.findings()
    yield from run.quarantine.findings()
    yield from run.siblings.findings()
    yield from run.targets.findings()


def _unreadable(path: Path, error: BankPathError | OSError) -> Finding:
    place = Location(path=path)
    if isinstance(error, BankPathError):
        return make_finding("AB101", place, error.problem, hint=error.hint)
    problem = f"cannot be read: {str(error.strerror or error).lower()}"
    return make_finding("AB101", place, problem)
