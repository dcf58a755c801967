"""Profiles of real models: their form and their meaning, never what was measured."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import onnx
import pytest
from support.engine.models import conv_net, if_net
from support.engine.profiles import PEAK

from aoe.device.cpu.device import Cpu
from aoe.errors import OptionError, RunError
from aoe.folders.turns import Turns
from aoe.measurement import CallTime
from aoe.om.file import write_offline_model
from aoe.profiling.document import profile_from_json, profile_to_json
from aoe.profiling.figures import ProfiledModel
from aoe.profiling.peak import MachinePeak
from aoe.profiling.probe import ProbedPeak
from aoe.profiling.run import (
    ProfileSettings,
    open_model,
    profile_file,
    profile_subject,
    thread_counts,
)
from aoe.settings import lock_path


def _profile(settings: ProfileSettings, **how: Any) -> ProfiledModel:
    """Profile on a machine whose peak is known."""
    known = ProbedPeak(peak=PEAK, was_kept=True)
    return profile_file(settings, **{"find_peak": lambda *_: known, **how})


def _settings(file: Path, **members: object) -> ProfileSettings:
    settings = ProfileSettings(
        model=file, runs=1, threads=1, sweeps=False, counts=False, env=dict(os.environ)
    )
    return replace(settings, **members)


def _saved(model: onnx.ModelProto, folder: Path) -> Path:
    file = folder / "net.onnx"
    file.write_bytes(model.SerializeToString())
    return file


def test_every_node_of_the_user_s_model_is_in_one_operator(tmp_path: Path) -> None:
    model = conv_net()
    profile = _profile(_settings(_saved(model, tmp_path)))
    names = [name for operator in profile.operators for name in operator.op_names]
    assert len(set(names)) == len(names)
    assert set(names) == {node.name for node in model.graph.node}
    assert (profile.threads, profile.runs) == (1, 1)
    assert {run.node for run in profile.timeline} == {op.name for op in profile.operators}


def test_operators_say_what_they_are(tmp_path: Path) -> None:
    profile = _profile(_settings(_saved(conv_net(), tmp_path)))
    by_node = {name: operator for operator in profile.operators for name in operator.op_names}
    assert by_node["prelu0"].dtype == "float32"
    assert by_node["lrn1"].layout == "plain"
    known = {operator.name for operator in profile.operators}
    assert all(known.issuperset(operator.reads) for operator in profile.operators)
    assert all(operator.roofline_us is not None for operator in profile.operators)
    assert isinstance(profile.peak, MachinePeak)


def test_reorders_belong_to_no_node_and_say_what_they_change(tmp_path: Path) -> None:
    profile = _profile(_settings(_saved(conv_net(), tmp_path)))
    reorders = [op for op in profile.operators if "Reorder" in op.op_type]
    assert all(operator.op_names == () for operator in reorders)
    assert all(" -> " in operator.layout for operator in reorders)


def test_threads_are_tried_one_by_one_and_all_at_last(tmp_path: Path) -> None:
    file = _saved(conv_net(), tmp_path)
    profile = _profile(_settings(file, threads=None, sweeps=True))
    assert sorted(profile.model_us_by_threads)[0] == 1
    assert max(profile.model_us_by_threads) == profile.threads
    operator = profile.operators[0]
    assert operator.median_us == operator.us_by_threads.get(profile.threads, operator.median_us)


@pytest.mark.parametrize(("most", "counts"), [(1, (1,)), (3, (1, 2, 3)), (16, (1, 2, 3, 4, 8, 16))])
def test_thread_counts_end_with_the_most(most: int, counts: tuple[int, ...]) -> None:
    assert thread_counts(most) == counts


def test_more_threads_than_cores_are_told(tmp_path: Path) -> None:
    told: list[str] = []
    profile = _profile(_settings(_saved(conv_net(), tmp_path), threads=4096), on_event=told.append)
    assert profile.threads < 4096
    assert any("instead of 4096" in text for text in told)


def test_busy_machine_is_told(tmp_path: Path) -> None:
    busy, told = ProbedPeak(peak=PEAK, quiet=False), list[str]()
    settings = _settings(_saved(conv_net(), tmp_path))
    profile = _profile(settings, on_event=told.append, find_peak=lambda *_: busy)
    assert any("machine was busy while its best was measured" in text for text in told)
    assert profile.caveats == tuple(text for text in told if "busy" in text)
    assert profile_from_json(profile_to_json(profile)).caveats == profile.caveats


def test_warm_times_are_of_what_takes_long_and_can_run_alone(tmp_path: Path) -> None:
    profile = _profile(_settings(_saved(conv_net(), tmp_path), warm=True))
    slowest = max(profile.operators, key=lambda operator: operator.median_us)
    assert slowest.warm_us is not None
    assert slowest.warm_us > 0


class _WatchedCpu(Cpu):
    """Says at each timing whether this run has the turn on the cores."""

    turns: ClassVar[list[bool]] = []

    def timer(self, run: Callable[[], object], **how: Any) -> Callable[[], CallTime]:
        owner = Turns(lock_path(dict(os.environ)), self.cores()).owner()
        self.turns.append(owner is not None and owner.pid == os.getpid())
        return super().timer(run, **how)


def test_warm_times_are_taken_in_the_turn_of_the_profile(tmp_path: Path) -> None:
    settings = _settings(_saved(conv_net(), tmp_path), warm=True)
    subject = replace(open_model(settings, tmp_path), device=_WatchedCpu())
    known = ProbedPeak(peak=PEAK, was_kept=True)
    profile_subject(subject, settings, tmp_path, find_peak=lambda *_: known)
    assert _WatchedCpu.turns and all(_WatchedCpu.turns)


def test_operator_that_holds_a_graph_has_a_time_and_no_roofline(tmp_path: Path) -> None:
    profile = _profile(_settings(_saved(if_net(), tmp_path), warm=True))
    branch = next(operator for operator in profile.operators if operator.op_type == "If")
    assert branch.median_us >= 0
    assert (branch.roofline_us, branch.warm_us) == (None, None)


# ---- tuned models ----


def test_kernels_of_a_tuned_model_compute_nodes_of_the_user_s_model(tuned_net: Any) -> None:
    profile = _profile(_settings(tuned_net.file, warm=True))
    kernels = [operator for operator in profile.operators if operator.op_type.startswith("aoe:")]
    assert kernels
    assert all(operator.op_names for operator in kernels)
    assert all(operator.roofline_us is not None for operator in kernels)
    names = [name for operator in profile.operators for name in operator.op_names]
    assert set(names) == {node.name for node in conv_net().graph.node}


def test_threads_are_those_a_model_was_tuned_for(tuned_net: Any) -> None:
    profile = _profile(_settings(tuned_net.file, threads=None))
    assert profile.threads == tuned_net.manifest.core_num


def test_kernels_of_another_cpu_are_refused(tuned_net: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.om"
    manifest = replace(tuned_net.manifest, cpu_features=("amx_of_tomorrow",))
    write_offline_model(elsewhere, tuned_net.copy_parts(tmp_path / "parts"), manifest)
    with pytest.raises(RunError, match="do not fit this machine: this CPU lacks amx_of_t"):
        _profile(_settings(elsewhere))


def test_model_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"none\.onnx"):
        _profile(_settings(tmp_path / "none.onnx"))


def test_framework_nobody_knows_is_told(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--framework"):
        _profile(_settings(_saved(conv_net(), tmp_path), framework=17))
