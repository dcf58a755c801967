"""Traces: what chrome://tracing and Perfetto read."""

from __future__ import annotations

import json

from support.engine.profiles import make_operator_profile, make_profile

from aoe.report.profiles import trace_document


def test_trace_has_an_event_per_operator_and_one_for_the_user_s_nodes() -> None:
    profile = make_profile(
        make_operator_profile("a_nchwc", op_names=("conv", "relu"), op_types=("Conv", "Relu")),
        make_operator_profile("reorder", op_type="ReorderOutput", op_names=(), median_us=5.0),
    )
    document = json.loads(json.dumps(trace_document(profile), allow_nan=False))
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert [(event["tid"], event["name"]) for event in events] == [
        (1, "conv + relu"),
        (2, "a_nchwc"),
        (2, "reorder"),
    ]
    assert [(event["ts"], event["dur"]) for event in events[1:]] == [(0.0, 100.0), (100.0, 5.0)]
    assert events[1]["cat"] == "Conv + Relu"
    assert events[1]["args"]["outputs"] == ["1x16x8x8"]
    assert events[1]["args"]["lost_us"] == 60.0


def test_lanes_have_names() -> None:
    events = trace_document(make_profile(make_operator_profile()))["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"net.onnx", "nodes of the model", "operators, 2 threads"}
