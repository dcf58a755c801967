"""`aoebank stale`: which records were measured in another environment, and why that matters."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from support.faulty_system import FaultySystem

import aoebank
from aoebank import Bank, Event, Record, StaleResult, make_unified_record
from aoebank.storage.machine import kernel_source_of, strategy_problem_of
from aoebank.testing.factories import make_provenance

_SOC = "x86-64-test"
_HERE = {"cpu_model": "Test CPU", "onnxruntime": "1.30.0"}


# a machine with known versions, and no engine
stale = partial(aoebank.stale, now=_HERE, source_of=lambda record: None)


def _record(name: str) -> Record:
    return make_unified_record(
        workload={"name": name}, strategy={"tile": 1}, cost_us=1.0, origin="test"
    )


def _bank(root: Path, **fingerprints: dict[str, Any] | None) -> dict[str, str]:
    """Write a record for each name; return the keys. None stands for a record without a line."""
    bank = Bank(root)
    file = bank.unified_file(soc_version=_SOC, core_num=2, op_type="lrn")
    records = {name: _record(name) for name in fingerprints}
    bank.put(file, records.values())
    for name, facts in fingerprints.items():
        if facts is not None:
            entry = make_provenance(records[name].key, event=Event.ADD, fingerprint=facts)
            bank.append_provenance(file, [entry])
    return {name: record.key for name, record in records.items()}


def _reasons(result: StaleResult) -> dict[str, str]:
    return {one.key: str(one.drift) for one in result.found}


def test_records_of_this_environment_are_not_listed(tmp_path: Path) -> None:
    _bank(tmp_path, a=_HERE, b={**_HERE, "soc_version": _SOC})
    result = stale(tmp_path)
    assert (result.found, result.looked_at) == ((), 2)


def test_each_is_listed_with_its_reasons_and_the_stale_ones_first(tmp_path: Path) -> None:
    keys = _bank(
        tmp_path,
        old={**_HERE, "onnxruntime": "1.29.0"},
        moved={**_HERE, "soc_version": "x86-64-other"},
        unknown=None,
    )
    result = stale(tmp_path)
    assert _reasons(result) == {
        keys["moved"]: "target x86-64-other -> x86-64-test: made for another one",
        keys["old"]: "onnxruntime 1.29.0 -> 1.30.0: soft mismatch, to be checked again",
        keys["unknown"]: "no fingerprint: nobody noted where it was measured, to be checked again",
    }
    assert result.found[0].key == keys["moved"]
    assert [one.drift.is_stale for one in result.found] == [True, False, False]


def test_record_that_was_measured_again_counts_as_measured_then(tmp_path: Path) -> None:
    keys = _bank(tmp_path, a={**_HERE, "onnxruntime": "1.29.0"})
    bank = Bank(tmp_path)
    file = bank.unified_file(soc_version=_SOC, core_num=2, op_type="lrn")
    again = make_provenance(keys["a"], event=Event.RESERVED, fingerprint=_HERE)
    bank.append_provenance(file, [again])
    assert stale(tmp_path).found == ()


def test_kernel_source_is_compared_where_an_engine_is_installed(tmp_path: Path) -> None:
    keys = _bank(tmp_path, a={**_HERE, "kernel_source": "a"}, b={**_HERE, "kernel_source": "b"})
    without = stale(tmp_path)
    assert (without.found, without.uncompared) == ((), 2)
    engine = EntryPoint(name="b", group="", value="support.faulty_system:FaultySystem")
    assert kernel_source_of([engine]) is FaultySystem  # whatever it is, it is loaded
    result = stale(tmp_path, source_of=lambda record: "b")
    assert _reasons(result) == {keys["a"]: "kernel source changed: stale"}
    assert result.uncompared == 0


def test_engine_that_cannot_be_loaded_is_none() -> None:
    gone = EntryPoint(name="gone", group="", value="no_such_module:nothing")
    assert kernel_source_of([gone]) is None
    assert kernel_source_of([]) is None
    assert strategy_problem_of([gone]) is None


def test_filters_leave_out_other_targets_and_operators(tmp_path: Path) -> None:
    _bank(tmp_path, a=None)
    assert stale(tmp_path, soc="x86-64-*", op="lrn").looked_at == 1
    assert stale(tmp_path, soc="Ascend*").looked_at == 0
    assert stale(tmp_path, op="softmax").looked_at == 0


def test_no_library_of_the_engine_is_loaded(tmp_path: Path) -> None:
    _bank(tmp_path, a={**_HERE, "kernel_source": "a"})
    code = (
        "import sys, aoebank\n"
        f"aoebank.stale({str(tmp_path)!r})\n"
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'halide', 'sklearn', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
