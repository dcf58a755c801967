"""What an earlier run has left, for a run that tunes only what changed: `--base_result`.

It is a bank, or becomes one in a scratch folder: of a directory of results that is its bank, and
what `op_tuning/` remembers besides; of a tuned model alone it is the records of its kernels.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aoe.bank.records.subgraph import NodeFeature, features_from_json
from aoe.bank.remembered import RememberedOperator, remembered_from_json
from aoe.errors import OptionError
from aoe.om.file import read_manifest
from aoe.results.files import bank_of_results
from aoe.workload import Workload, workload_from_json, workload_to_json
from aoebank import (
    Bank,
    Event,
    Provenance,
    make_graph_record,
    make_unified_record,
    workload_key,
)

_DETAILS, _SUBGRAPHS, _SUMMARY = "op_tuning", "subgraph_tuning", "summary.json"
_LONG_AGO = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierOperator:
    """An operator of the earlier model."""

    key: str
    op_names: tuple[str, ...]
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierSubgraph:
    """A subgraph of the earlier model; its nodes may not be known."""

    graph_id: str
    op_names: tuple[str, ...]
    nodes: tuple[NodeFeature, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierResult:
    """What an earlier run has left.

    Attributes:
        name: How a person wrote where it is.
        bank: What it has learned.
        operators: Of its model, by record key; none where it is a bank of any models.
        subgraphs: Of its model, by identity, likewise.
        soc_version: What it was tuned for, empty for a bank.
        core_num: Threads it was tuned for, 0 for a bank.
    """

    name: str
    bank: Bank
    operators: Mapping[str, EarlierOperator] = field(default_factory=dict)
    subgraphs: Mapping[str, EarlierSubgraph] = field(default_factory=dict)
    soc_version: str = ""
    core_num: int = 0

    def why_not_looked_up(self, soc_version: str, core_num: int) -> str:
        """Return why a part of the earlier model is of no use for this target."""
        if self.soc_version not in ("", soc_version):
            return f"target {self.soc_version} -> {soc_version}: made for another one"
        if self.core_num not in (0, core_num):
            return f"core_num {self.core_num} -> {core_num}: made for another number of threads"
        return "not tuned then"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    operator: EarlierOperator
    memory: RememberedOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class _RememberedSubgraph:
    subgraph: EarlierSubgraph
    feature: Any
    memory: RememberedOperator


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
        if has_results(folder) and _read_json(folder / _SUMMARY).get("om") == place.name:
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
    """Return whether a folder has what a run leaves of its operators or subgraphs."""
    has_details = any((folder / name).is_dir() for name in (_DETAILS, _SUBGRAPHS))
    return has_details or bank_of_results(folder) is not None


def _of_results(folder: Path, scratch: Path) -> EarlierResult:
    own = bank_of_results(folder)
    if own is not None:
        shutil.copytree(own, scratch, dirs_exist_ok=True)
    summary = _read_json(folder / _SUMMARY)
    target, versions = _object(summary, "target"), _object(summary, "versions")
    facts = {
        **{
            name: target[name]
            for name in ("soc_version", "core_num", "cpu_model")
            if name in target
        },
        **{name: versions[name] for name in ("onnxruntime", "halide") if name in versions},
    }
    soc_version, core_num = str(target.get("soc_version", "")), _whole(target.get("core_num"))
    known = [*_details(folder / _DETAILS, facts)]
    subgraphs = [*_subgraph_details(folder / _SUBGRAPHS)]
    bank = Bank(scratch)
    if soc_version and core_num:
        _fill(bank, known, soc_version, core_num)
    if soc_version:
        _fill_subgraphs(bank, subgraphs, soc_version)
    return EarlierResult(
        name=str(folder),
        bank=bank,
        operators={one.operator.key: one.operator for one in known},
        subgraphs={one.subgraph.graph_id: one.subgraph for one in subgraphs},
        soc_version=soc_version,
        core_num=core_num,
    )


def _of_model(file: Path, scratch: Path) -> EarlierResult:
    manifest = read_manifest(file)
    known = []
    for kernel in manifest.kernels:
        operator = _operator(kernel.record.get("workload"), kernel.op_names)
        if operator is not None:
            known.append(_Remembered(operator=operator, memory=remembered_from_json(kernel.record)))
    subgraphs = [_subgraph(use.graph_id, use.op_names, use.record) for use in manifest.subgraphs]
    bank = Bank(scratch)
    _fill(bank, known, manifest.soc_version, manifest.core_num)
    _fill_subgraphs(bank, subgraphs, manifest.soc_version)
    return EarlierResult(
        name=str(file),
        bank=bank,
        operators={one.operator.key: one.operator for one in known},
        subgraphs={one.subgraph.graph_id: one.subgraph for one in subgraphs},
        soc_version=manifest.soc_version,
        core_num=manifest.core_num,
    )


def _details(folder: Path, facts: Mapping[str, Any]) -> Iterator[_Remembered]:
    """Yield the operators in the details of a run; invalid members are left out."""
    for file in sorted(folder.glob("*.json")):
        members = _read_json(file, list)
        for item in members:
            names = item.get("op_names") if isinstance(item, dict) else None
            if not isinstance(names, list):
                continue
            operator = _operator(item.get("workload"), map(str, names))
            if operator is None:
                continue
            memory = remembered_from_json(item)
            if "provenance" not in item:  # written before details had it
                memory = _of_old_details(item, operator, facts)
            yield _Remembered(operator=operator, memory=memory)


def _subgraph_details(folder: Path) -> Iterator[_RememberedSubgraph]:
    """Yield the subgraphs in the details of a run; invalid members are left out."""
    for file in sorted(folder.glob("*.json")):
        item = _read_json(file)
        graph_id, names = item.get("graph_id"), item.get("nodes")
        if isinstance(graph_id, str) and isinstance(names, list) and names:
            yield _subgraph(graph_id, (str(names[-1]),), item)


def _subgraph(
    graph_id: str, op_names: tuple[str, ...], members: Mapping[str, Any]
) -> _RememberedSubgraph:
    feature = members.get("feature")
    return _RememberedSubgraph(
        subgraph=EarlierSubgraph(
            graph_id=graph_id, op_names=op_names, nodes=features_from_json(feature)
        ),
        feature=feature,
        memory=remembered_from_json(members),
    )


def _operator(workload: Any, op_names: Iterable[str]) -> EarlierOperator | None:
    try:
        parsed = workload_from_json(workload)
    except (ValueError, TypeError, AttributeError):
        return None
    key = workload_key(workload_to_json(parsed))
    return EarlierOperator(key=key, op_names=tuple(op_names), workload=parsed)


def _of_old_details(
    item: Mapping[str, Any], operator: EarlierOperator, facts: Mapping[str, Any]
) -> RememberedOperator:
    """Return the record and lines in details that have a strategy and trials alone."""
    steps, speedup = item.get("strategy"), item.get("speedup")
    if not isinstance(steps, list):
        return RememberedOperator()
    trials = item.get("trials")
    tried = [
        trial
        for trial in (trials if isinstance(trials, list) else ())
        if isinstance(trial, dict) and isinstance(trial.get("speedup"), int | float)
    ]
    best = max(tried, key=lambda trial: trial["speedup"], default={})
    line = Provenance(
        key=operator.key,
        event=Event.ADD,
        time=_LONG_AGO,
        engine="aoe",
        fingerprint=dict(facts),
        op_names=operator.op_names,
        speedup=speedup if isinstance(speedup, int | float) and speedup > 0 else None,
    )
    strategy = {
        "engine": "aoe",
        "version": 1,
        "knobs": best.get("configuration", {}),
        "steps": steps,
    }
    return RememberedOperator(strategy=strategy, lines=(line,))


def _fill(bank: Bank, known: Iterable[_Remembered], soc_version: str, core_num: int) -> None:
    """Put into a bank what it does not have."""
    for one in known:
        operator, memory = one.operator, one.memory
        file = bank.unified_file(
            soc_version=soc_version, core_num=core_num, op_type=operator.workload.op_type
        )
        if memory.strategy is not None and bank.find(file, operator.key) is None:
            record = make_unified_record(
                workload=workload_to_json(operator.workload),
                strategy=memory.strategy,
                cost_us=memory.cost_us,
                origin="aoe",
            )
            record = replace(record, soc_version=soc_version, op_type=operator.workload.op_type)
            file.parent.mkdir(parents=True, exist_ok=True)
            bank.put(file, [record])
        lines = [line for line in memory.lines if line.key == operator.key]
        old = [*bank.iter_provenance(file, operator.key)]
        news = [line for line in lines if line not in old]
        if news:
            file.parent.mkdir(parents=True, exist_ok=True)
            bank.append_provenance(file, news)


def _fill_subgraphs(bank: Bank, known: Iterable[_RememberedSubgraph], soc_version: str) -> None:
    """Put into a bank what it does not have of subgraphs."""
    file = bank.graph_file(soc_version)
    for one in known:
        graph_id, strategy = one.subgraph.graph_id, one.memory.strategy
        is_there = file.exists() and bank.find(file, graph_id) is not None
        if strategy is not None and not is_there:
            try:
                record = make_graph_record(
                    graph_id=graph_id,
                    feature=one.feature["feature"],
                    groups=strategy["group"],
                    end_to_end_ns=strategy["end2EndTime"],
                    model_name=strategy.get("modelName"),
                )
            except (ValueError, TypeError, KeyError):
                continue  # somebody has edited it
            file.parent.mkdir(parents=True, exist_ok=True)
            bank.put(file, [replace(record, soc_version=soc_version)])
        old = [*bank.iter_provenance(file, graph_id)]
        news = [line for line in one.memory.lines if line.key == graph_id and line not in old]
        if news:
            file.parent.mkdir(parents=True, exist_ok=True)
            bank.append_provenance(file, news)


def _read_json(file: Path, kind: type = dict) -> Any:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        value = None
    return value if isinstance(value, kind) else kind()


def _object(members: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = members.get(name)
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0
