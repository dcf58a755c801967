"""What of advice is counted as found, and what as false; nothing is measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import advice as benchmark
import numpy as np
import onnx
import pytest
from networks.registry import NETWORKS
from planted_models import PLANTED
from support.engine.profiles import make_operator_profile, make_profile, make_tried

from aoe.advice.causes import Cause, FoundCause, LowPerformer
from aoe.advice.run import ModelAdvice
from aoe.advice.trying import TrialVerdict, TriedAction
from aoe.device.registry import default_device

_MACHINE = {"cpu": "Test CPU", "cores": 2, "versions": {"onnxruntime": "1.31"}}


def _advise(name: str, cause: Cause, *tried: TriedAction) -> Any:
    loop = make_operator_profile("loop", op_type="Loop")
    low = LowPerformer(operator=loop, room_us=1.0, causes=(FoundCause(cause=cause, detail=""),))
    found = ModelAdvice(profile=make_profile(loop), low=(low,), tried=tried, not_tried=())
    job = benchmark.Job(which="planted", name=name, file=Path("net.onnx"), most=1)
    return benchmark.advised(job, lambda *_: [1.4, 1.6, 0.9], lambda *_, **__: found)


def test_cause_and_action_are_those_that_were_planted() -> None:
    gain = make_tried("constants-once", 1.5, TrialVerdict.GAIN)
    record = _advise("constant", Cause.CONSTANT, gain)
    assert (record["cause_found"], record["action_tried"], record["speedup"]) == (True, True, 1.5)
    [claim] = record["claims"]
    assert benchmark.holds(claim)
    missed = _advise("constant", Cause.MEMORY)
    assert (missed["cause_found"], missed["action_tried"], missed["claims"]) == (False, False, [])


def test_cause_of_another_operator_is_not_the_planted_one() -> None:
    record = _advise("no-kernel", Cause.NO_KERNEL)
    assert not record["cause_found"]


@pytest.mark.parametrize(
    ("again", "is_true"), [([1.01, 1.2, 0.9], True), ([0.99, 0.98, 1.5], False), ([], False)]
)
def test_claim_holds_if_it_shows_again(again: list[float], is_true: bool) -> None:
    assert benchmark.holds({"again": again}) is is_true


def test_tables_count_what_is_found_and_what_is_false() -> None:
    gain = make_tried("constants-once", 1.5, TrialVerdict.GAIN)
    planted = _advise("constant", Cause.CONSTANT, gain)
    claims = [
        {"action": "power-as-product", "claimed": 1.1, "low": 1.05, "again": [1.1]},
        {"action": "batch-split", "claimed": 1.02, "low": 1.01, "again": [0.99]},
    ]
    sound = {"set": "sound", "tried": {"a": "gain", "b": "gain"}, "claims": claims}
    steps = {"constant": planted, "net": sound}
    text = benchmark.tables({"environment": _MACHINE, "date": "2026-01-01", "steps": steps})
    assert text.startswith("Test CPU, 2 threads, ONNX Runtime 1.31, 2026-01-01")
    assert "1 of 1 causes found, 1 of 1 actions tried." in text
    assert "| constant | constant: found | constants-once | 1.500x | yes | 1.400x |" in text
    assert "1 sound models: 2 actions tried, 2 gains claimed, 1 of them false, 50%" in text
    assert "1.100x, 0.990x | batch-split |" in text


def test_what_is_tried_again_is_what_was_claimed(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(PLANTED["constant"].build().SerializeToString())
    model, copy = benchmark.both_models(file, "constants-once", default_device(), 1)
    assert [node.op_type for node in copy.graph.node] == ["Add", "Relu"]
    assert len(model.graph.node) == 3
    network = benchmark.network_of("copy", tmp_path / "copy", copy)
    with np.load(network.inputs) as inputs:
        assert inputs.files == [onnx.load(network.model).graph.input[0].name]


def test_sound_networks_are_twelve_of_the_suite() -> None:
    assert len(set(benchmark.SOUND)) == 12
    assert set(benchmark.SOUND) <= set(NETWORKS)
