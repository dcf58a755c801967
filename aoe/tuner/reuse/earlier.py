"""Results of an earlier run, for a run that tunes only what changed: `--base_result`.

It is a bank, or becomes one in a scratch folder: of a directory of results that is its bank, and
what its folders of details remember besides; of a tuned model alone it is the records in it. Each
kind of task reads its own details and its own part of a tuned model, see `EarlierTasks`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from aoe.bank.damage import DamagedFile, without_damaged
from aoe.errors import OptionError
from aoe.om.file import Manifest, read_manifest
from aoe.results.files import bank_of_results
from aoe.tuner.mode import JobType
from aoe.tuner.registry import KINDS
from aoebank import Bank, Provenance, Record

_SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTarget:
    """Target of an earlier run."""

    soc_version: str = ""  # Target, empty if unknown
    core_num: int = 0  # Threads, 0 if unknown
    # Its machine and versions, as far as known.
    fingerprint: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTask:
    """A task of the earlier model."""

    key: str  # Record key
    op_type: str  # Kernel family, or what the record is of
    op_names: tuple[str, ...]  # Its places in the earlier model
    subject: Any  # What the kind compares tasks by: a `Workload`, the nodes of a subgraph
    file_in: Callable[[Bank], Path]  # Returns the file a bank has the record in
    # What was found, None where that was nothing, or where no bank has a place for it.
    record: Record | None = None
    lines: tuple[Provenance, ...] = ()  # Of the side-car, that still count


class EarlierTasks(Protocol):
    """The module of a kind of task that knows its tasks in banks, results and tuned models."""

    @property
    def DETAILS(self) -> str:
        """Folder of a directory of results with JSON files on tasks, one or several in a file."""
        ...

    def has_records(self, bank: Bank, soc_version: str) -> bool:
        """True if tasks of the kind may be found when a model is looked up in a bank."""
        ...

    def task_of_details(
        self, members: Mapping[str, Any], target: EarlierTarget
    ) -> EarlierTask | None:
        """Return the task in details, None where they are not valid."""
        ...

    def tasks_of_model(self, manifest: Manifest, target: EarlierTarget) -> Iterable[EarlierTask]:
        """Return the tasks in a tuned model, without invalid ones."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierResult:
    """Bank, tasks and target of an earlier run."""

    name: str  # How a person wrote where it is
    bank: Bank  # What it has learned
    # Of its model, by kind and record key; none where it is a bank of any models.
    tasks: Mapping[JobType, Mapping[str, EarlierTask]] = field(default_factory=dict)
    target: EarlierTarget = EarlierTarget()  # What it was tuned for; unknown of a bank
    damaged: tuple[DamagedFile, ...] = ()  # Files of its bank that were passed over

    def tasks_of(self, job: JobType) -> Mapping[str, EarlierTask]:
        """Return the tasks of a kind, by record key."""
        return self.tasks.get(job, {})

    def why_not_looked_up(self, soc_version: str, core_num: int) -> str:
        """Return why a part of the earlier model is of no use for this target."""
        then = self.target
        if then.soc_version not in ("", soc_version):
            return f"target {then.soc_version} -> {soc_version}: made for another one"
        if then.core_num not in (0, core_num):
            return f"core_num {then.core_num} -> {core_num}: made for another number of threads"
        return "not tuned then"


def earlier_tasks() -> Mapping[JobType, EarlierTasks]:
    """Return the module of each kind that knows its earlier tasks."""
    return {
        job: cast(EarlierTasks, import_module(kind.earlier))
        for job, kind in KINDS.items()
        if kind.earlier
    }


def looked_up_kinds(bank: Bank, soc_version: str) -> tuple[JobType, ...]:
    """Return the kinds of tasks that are looked up in a bank, in their order."""
    known = earlier_tasks().items()
    return tuple(job for job, kind in known if kind.has_records(bank, soc_version))


def open_earlier(place: Path, scratch: Path) -> EarlierResult:
    """Return the earlier result at a place: a directory of results, a tuned model, or a bank.

    Args:
        place: What `--base_result` names.
        scratch: Empty directory for a bank, if one has to be made.

    Raises:
        OptionError: there is nothing of the kind.
        OfflineModelError: the tuned model cannot be read.
        AoebankError: a bank cannot be read.
    """
    if place.is_file():
        folder = place.parent
        if has_results(folder) and _read_object(folder / _SUMMARY).get("om") == place.name:
            return replace(_of_results(folder, scratch), name=str(place))
        return _of_model(place, scratch)
    if has_results(place):
        return _of_results(place, scratch)
    if place.is_dir() and next(Bank(place).iter_files(), None) is not None:
        return EarlierResult(name=str(place), bank=Bank(place))
    raise OptionError(
        "--base_result",
        "no earlier result",
        got=str(place),
        expected="a directory an --output named, a tuned model, or the root of a bank",
    )


def has_results(folder: Path) -> bool:
    """True if a folder has what a run leaves of its tasks."""
    has_details = any((folder / kind.DETAILS).is_dir() for kind in earlier_tasks().values())
    return has_details or bank_of_results(folder) is not None


def _of_results(folder: Path, scratch: Path) -> EarlierResult:
    own, damaged = bank_of_results(folder), list[DamagedFile]()
    target = _target_in(_read_object(folder / _SUMMARY))
    if own is not None:
        shutil.copytree(own, scratch, dirs_exist_ok=True)
        # what the details remember takes the place of a damaged file
        for one in without_damaged(Bank(scratch), target.soc_version, may_write=True):
            file = own / one.file.relative_to(scratch)
            damaged.append(replace(one, file=file, aside=None))
    found = {
        job: [
            task
            for members in _details(folder / kind.DETAILS)
            if (task := kind.task_of_details(members, target)) is not None
        ]
        for job, kind in earlier_tasks().items()
    }
    return replace(_earlier_result(str(folder), scratch, found, target), damaged=tuple(damaged))


def _of_model(file: Path, scratch: Path) -> EarlierResult:
    manifest = read_manifest(file)
    target = EarlierTarget(soc_version=manifest.soc_version, core_num=manifest.core_num)
    found = {job: [*kind.tasks_of_model(manifest, target)] for job, kind in earlier_tasks().items()}
    return _earlier_result(str(file), scratch, found, target)


def _earlier_result(
    name: str, scratch: Path, found: Mapping[JobType, list[EarlierTask]], target: EarlierTarget
) -> EarlierResult:
    """Return a result whose bank has what its tasks remember, too."""
    bank = Bank(scratch)
    for tasks in found.values():
        _fill(bank, tasks)
    return EarlierResult(
        name=name,
        bank=bank,
        tasks={job: {task.key: task for task in tasks} for job, tasks in found.items()},
        target=target,
    )


def _fill(bank: Bank, tasks: Iterable[EarlierTask]) -> None:
    """Put into a bank what it does not have."""
    for task in tasks:
        if task.record is None and not task.lines:
            continue
        file = task.file_in(bank)
        is_new = task.record is not None and bank.find(file, task.key) is None
        old = [*bank.iter_provenance(file, task.key)]
        news = [line for line in task.lines if line.key == task.key and line not in old]
        bank.put(file, [task.record] if task.record is not None and is_new else [], news)


def _details(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the details of tasks in a folder; what is no object is left out."""
    for file in sorted(folder.glob("*.json")):
        value = _read_json(file)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield item


def _target_in(summary: Mapping[str, Any]) -> EarlierTarget:
    """Return the target the run of a summary tuned for."""
    target, versions = _object(summary, "target"), _object(summary, "versions")
    names = {"soc_version": target, "core_num": target, "cpu_model": target}
    names |= {"onnxruntime": versions, "halide": versions}
    return EarlierTarget(
        soc_version=str(target.get("soc_version", "")),
        core_num=_whole(target.get("core_num")),
        fingerprint={name: where[name] for name, where in names.items() if name in where},
    )


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _read_object(file: Path) -> Mapping[str, Any]:
    value = _read_json(file)
    return value if isinstance(value, dict) else {}


def _object(members: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = members.get(name)
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0
