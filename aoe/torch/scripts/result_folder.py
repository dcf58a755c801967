"""What a training leaves for later runs and other machines: its bank, details and a summary.

The same files as those of a run on a model: `bank/` with the records the training uses,
`op_tuning/` with all that is known of each region, `summary.json`. So `--base_result`, `set_option`
and `aoe verify` read them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from aoe.bank.journal import BankJournal
from aoe.bank.operators import OperatorBank, key_of
from aoe.bank.remembered import remembered_to_json
from aoe.device.registry import resolve_target
from aoe.results.files import (
    BANK_FOLDER,
    RepoOutcome,
    improvement_text,
    interval_to_json,
    write_json,
)
from aoe.runs.model_mode import count_members, rounded
from aoe.target import Target
from aoe.torch.scripts.regions import TunedGraph, TunedRegion
from aoe.torch.scripts.whole_steps import StepGain, StepOutcome
from aoe.tuner.mode import JobType
from aoe.tuner.parts import library_versions
from aoe.tuner.reuse.book import reuse_summary
from aoe.tuner.reuse.earlier import EarlierResult
from aoe.tuner.reuse.kinds import Reuse, ReuseKind, ReuseSummary, nearest_change, reuse_to_json
from aoe.workload import TRAINING_CONVOLUTION, TRAINING_LOOP, Workload, workload_to_json

_BY_ALL_THREADS = (TRAINING_CONVOLUTION, TRAINING_LOOP)
"""Families that are compared with PyTorch by all of its threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPart:
    """A workload of a training, and its regions."""

    workload: Workload
    names: tuple[str, ...]  # Of its regions, the first one names it
    region: TunedRegion  # The first one
    is_used: bool  # True if a step is computed with its record

    @property
    def key(self) -> str:
        """Record key."""
        return key_of(self.workload)


def region_names(graph: TunedGraph) -> Iterator[tuple[str, TunedRegion]]:
    """Yield the regions of a graph with their names in result files."""
    for number, region in enumerate(graph.regions, start=1):
        yield f"{graph.name}/{region.direction}/region_{number}", region


def recorded_parts(graphs: Sequence[TunedGraph]) -> tuple[RecordedPart, ...]:
    """Return the workloads of graphs that a bank may have records of, each once."""
    found: dict[str, RecordedPart] = {}
    for graph in graphs:
        for name, region in region_names(graph):
            for workload in region.workloads:
                part = RecordedPart(
                    workload=workload,
                    names=(name,),
                    region=region,
                    is_used=bool(graph.is_used) and region.is_used,
                )
                if (known := found.get(part.key)) is not None:
                    names, is_used = (*known.names, name), known.is_used or part.is_used
                    part = replace(known, names=names, is_used=is_used)
                found[part.key] = part
    return tuple(found.values())


class TrainingBanks:
    """The banks of a training at one root, one for each number of threads that is compared.

    Args:
        root: Of the bank.
        base: Looked up behind it; None for none.
    """

    def __init__(self, root: Path, base: EarlierResult | None = None) -> None:
        self._root, self._base = root, base
        _, self._target = resolve_target(None, 1)

    def of(self, workload: Workload) -> OperatorBank:
        """Return the bank that has the record of a workload."""
        core_num = torch.get_num_threads() if workload.op_type in _BY_ALL_THREADS else 1
        journal = BankJournal(
            self._root,
            self._target.soc_version,
            fingerprint={},
            model={},
            engine_version=library_versions()["aoe"],
        )
        base = self._base.bank if self._base is not None else None
        return OperatorBank(journal, core_num=core_num, base=base)

    @property
    def target(self) -> Target:
        """What records are made for."""
        return replace(self._target, core_num=torch.get_num_threads())


def reuse_of_training(
    parts: Sequence[RecordedPart], banks: TrainingBanks, base: EarlierResult | None
) -> ReuseSummary | None:
    """Return the regions reused from an earlier result and the others; None without one."""
    if base is None:
        return None
    earlier = [task.subject for task in base.tasks_of(JobType.OPAT).values()]
    found = []
    for part in parts:
        kind, reason = ReuseKind.REUSED, part.region.reason or "has a record"
        if not part.region.is_known:
            drift = banks.of(part.workload).base_drift(part.workload)
            others = [one for one in earlier if one.op_type == part.workload.op_type]
            change = str(drift or "") or nearest_change(part.workload, others)
            kind = ReuseKind.RETUNED if change else ReuseKind.NEW
            reason = change or f"nothing like it in {base.name}"
        found.append(
            Reuse(
                key=part.key,
                op_type=part.workload.op_type,
                op_names=part.names,
                kind=kind,
                reason=reason,
            )
        )
    return reuse_summary(base, JobType.OPAT, found)


def write_folder(
    folder: Path,
    graphs: Sequence[TunedGraph],
    bank_root: Path | None,
    *,
    name: str,
    seconds: float,
    reuse: ReuseSummary | None,
    gain: StepGain | None = None,
) -> None:
    """Write `bank/`, `op_tuning/` and `summary.json` of a training.

    Args:
        folder: Directory of results.
        graphs: Of the training.
        bank_root: Root of the bank that was used, None where there is none.
        name: Of the run.
        seconds: How long it took.
        reuse: What was taken from an earlier result, None without one.
        gain: Of whole steps, None where they were not compared.

    Raises:
        OutputError: a file cannot be written.
        AoebankError: a bank cannot be read or written.
    """
    parts = recorded_parts(graphs)
    banks = TrainingBanks(bank_root) if bank_root is not None else None
    details: dict[str, list[Any]] = {}
    for part in parts:
        bank = banks.of(part.workload) if banks is not None else None
        if bank is not None:
            bank.copy_to(folder / BANK_FOLDER, [part.workload])
        file = f"{part.workload.op_type}_{part.workload.precision.value}.json"
        details.setdefault(file, []).append(_detail(part, bank))
    for file, rows in details.items():
        write_json(folder / "op_tuning" / file, rows)
    target = (banks or TrainingBanks(folder)).target
    summary = _summary(graphs, parts, target, name=name, seconds=seconds, reuse=reuse, gain=gain)
    write_json(folder / "summary.json", summary)


def _detail(part: RecordedPart, bank: OperatorBank | None) -> Mapping[str, Any]:
    """Return all that is known of a workload, as `op_tuning/` has it."""
    remembered = bank.remembered(part.workload) if bank is not None else None
    strategy = remembered.strategy if remembered is not None else None
    return {
        "schema": "aoe.op_tuning/1",
        "key": part.key,
        "op_names": list(part.names),
        "graph": "training",
        "direction": part.region.direction,
        "requires_grad": True,
        "workload": workload_to_json(part.workload),
        "outcome": part.region.outcome.value,
        "reason": part.region.reason,
        "speedup": _speedup(part.region),
        "strategy": None if strategy is None else strategy.get("steps"),
        "trials": [],
        **(remembered_to_json(remembered) if remembered is not None else {}),
    }


def _speedup(region: TunedRegion) -> float | None:
    return rounded(region.estimate.median if region.estimate is not None else None)


def _summary(
    graphs: Sequence[TunedGraph],
    parts: Sequence[RecordedPart],
    target: Target,
    *,
    name: str,
    seconds: float,
    reuse: ReuseSummary | None,
    gain: StepGain | None,
) -> Mapping[str, Any]:
    rows = [_row(part) for part in parts]
    return {
        "schema": "aoe.summary/1",
        "tuning_name": name,
        "model": {"name": name.rpartition("_")[0], "graph": "training"},
        "target": {
            "soc_version": target.soc_version,
            "core_num": target.core_num,
            "cpu_model": target.cpu_model,
            "features": list(target.features),
        },
        "versions": {**library_versions(), "torch": str(torch.__version__)},
        "seconds": round(seconds, 1),
        "baseline": "PyTorch, same threads",
        **count_members(rows, seconds),
        "performance_improvement": improvement_text(gain_of_all(graphs, gain)),
        "steps": gain_to_json(gain),
        "repo": {
            outcome.value: sum(row["outcome"] == outcome.value for row in rows)
            for outcome in RepoOutcome
        },
        "operators": rows,
        "reuse": reuse_to_json(reuse),
    }


def gain_of_all(graphs: Sequence[TunedGraph], gain: StepGain | None) -> float:
    """Return the speed-up of a training: of whole steps, else of the passes of its graphs."""
    if gain is not None:
        return 1.0 if gain.outcome is StepOutcome.SLOWER else gain.estimate.median
    gains = [graph.passes.median if graph.passes and graph.is_used else 1.0 for graph in graphs]
    return math.prod(gains) ** (1 / max(1, len(gains)))


def gain_to_json(gain: StepGain | None) -> dict[str, Any] | None:
    """Return the gain of whole steps, as files have it."""
    if gain is None:
        return None
    return {
        "outcome": gain.outcome.value,
        "speedup": interval_to_json(gain.estimate),
        "pairs": gain.estimate.pairs,
        "eager_ms": rounded(gain.eager_ms),
        "is_known": gain.is_known,
        "busy": gain.busy,
    }


def _row(part: RecordedPart) -> dict[str, Any]:
    region = part.region
    speedup = _speedup(region)
    after_us = region.eager_us / speedup if speedup else None
    return {
        "key": part.key,
        "op_type": part.workload.op_type,
        "op_name": part.names[0],
        "op_names": list(part.names),
        "direction": region.direction,
        "requires_grad": True,
        "model_op_types": list(region.operators),
        "before_us": rounded(region.eager_us) or None,
        "after_us": rounded(after_us),
        "speedup": speedup,
        "outcome": region.outcome.value,
        "reason": region.reason,
        "in_model": part.is_used,
    }
