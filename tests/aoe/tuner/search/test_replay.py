"""Replay: recordings as files, and searches run against them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.contracts.replay import (
    Recording,
    load_recording,
    parse_recording,
    replay,
    serialize_recording,
)
from support.contracts.synthetic_space import KernelModel, synthetic_recording
from support.scripts import load_script

from aoe.measurement import Outcome
from aoe.schedule import Configuration
from aoe.tuner.search.random_search import RandomSearch

TEXT = """\
{"configuration": {"vector": 16, "order": "xy"}, "outcome": "correct", "latency_us": 10.0}
{"configuration": {"vector": 8, "order": "xy"}, "latency_us": 40}

{"configuration": {"vector": 8, "order": "yx"}, "outcome": "compile"}
"""


def make_recording() -> Recording:
    return parse_recording(TEXT)


def test_the_space_of_a_recording_is_what_was_recorded() -> None:
    recording = make_recording()
    assert recording.space.size == 3
    assert recording.space.combinations == 4
    assert [knob.choices for knob in recording.space.knobs] == [("xy", "yx"), (8, 16)]
    assert recording.optimum_us == 10.0


def test_trials_are_answered_from_the_recording() -> None:
    recording = make_recording()
    fast = recording.trial(Configuration({"vector": 16, "order": "xy"}))
    assert (fast.outcome, fast.latency_us, fast.speedup) == ("correct", 10.0, 4.0)
    failed = recording.trial(Configuration({"vector": 8, "order": "yx"}))
    assert (failed.outcome, failed.latency_us, failed.speedup) == (Outcome.COMPILE, None, None)


def test_replay_gives_the_fraction_of_the_optimum_after_each_trial() -> None:
    recording = make_recording()
    for seed in range(6):
        search = RandomSearch(recording.space, budget=9, seed=seed)
        order = RandomSearch(recording.space, budget=9, seed=seed).ask(9)
        best, expected = float("inf"), []
        for configuration in order:
            best = min(best, recording.latencies_us.get(configuration, best))
            expected.append(10.0 / best)
        assert replay(search, recording, 5) == (*expected, expected[-1], expected[-1])


def test_replay_of_batches_measures_as_many_trials() -> None:
    recording = synthetic_recording(0, is_small=True)
    search = RandomSearch(recording.space, budget=20)
    assert len(replay(search, recording, 20, batch=7)) == 20


def test_text_brings_back_the_same_recording() -> None:
    recording = synthetic_recording(2, is_small=True)
    again = parse_recording(serialize_recording(recording))
    assert again.latencies_us == recording.latencies_us
    assert again.failures == recording.failures
    assert set(again.space.configurations()) == set(recording.space.configurations())


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "space.jsonl"
    file.write_text(TEXT + TEXT.splitlines()[0][:30])
    assert load_recording(file).latencies_us == make_recording().latencies_us


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[1]",
        '"text"',
        "{}",
        '{"configuration": {"a": 1}}',
        '{"configuration": {"a": 1}, "latency_us": 0}',
        '{"configuration": {"a": 1}, "latency_us": "fast"}',
        '{"configuration": {"a": 1}, "latency_us": NaN}',
        '{"configuration": {"a": 1}, "outcome": "eaten"}',
        '{"configuration": 4, "latency_us": 1}',
    ],
)
def test_a_bad_line_is_refused_with_its_place(tmp_path: Path, line: str) -> None:
    file = tmp_path / "space.jsonl"
    file.write_text(f'{{"configuration": {{"a": 2}}, "latency_us": 1}}\n{line}\n')
    with pytest.raises(ValueError, match=r"space\.jsonl:2: is not a recorded trial"):
        load_recording(file)


def test_records_of_different_spaces_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in their knobs"):
        parse_recording(
            '{"configuration": {"a": 1}, "latency_us": 1}\n'
            '{"configuration": {"b": 1}, "latency_us": 1}\n'
        )


def test_a_recording_without_a_correct_trial_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a correct configuration"):
        parse_recording('{"configuration": {"a": 1}, "outcome": "timeout"}\n')


# The synthetic spaces.


def test_synthetic_recordings_repeat_themselves_from_their_seed() -> None:
    first, again = (synthetic_recording(3, is_small=True) for _ in range(2))
    assert first.latencies_us == again.latencies_us
    assert first.latencies_us != synthetic_recording(4, is_small=True).latencies_us


@pytest.mark.parametrize("seed", range(6))
def test_synthetic_spaces_are_hard_enough_to_need_a_search(seed: int) -> None:
    recording = synthetic_recording(seed, is_small=True)
    times = sorted(recording.latencies_us.values())
    assert recording.failures
    assert recording.space.size < recording.space.combinations
    assert times[len(times) // 2] > 2 * times[0]
    assert sum(time < 1.1 * times[0] for time in times) < 0.05 * len(times)
    assert recording.reference_us > 1.5 * times[0]


def test_in_a_synthetic_space_the_best_vector_depends_on_the_unrolling() -> None:
    model = KernelModel.drawn(1)
    base = {"tile_x": 64, "tile_y": 4, "task": 1, "order": "xy", "store": "heap"}
    times = {
        (vector, unroll): model.latency_us({**base, "vector": vector, "unroll": unroll})
        for vector in (4, 8, 16, 32)
        for unroll in (1, 2, 4, 8)
    }
    best_vector = {
        unroll: min((4, 8, 16, 32), key=lambda vector: times[vector, unroll]) for unroll in (1, 8)
    }
    assert best_vector[1] != best_vector[8]


# The script.


def test_script_scores_recorded_spaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "space.jsonl"
    file.write_text(serialize_recording(synthetic_recording(0, is_small=True)))
    options = ["--recorded", str(file), "--seeds", "3", "--trials", "4", "9"]
    assert (
        load_script("benchmarks/search_replay.py").main(
            [*options, "--search", "random", "exhaustive"]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1 spaces of 1392 configurations, 3 seeds each")
    assert [line.split()[0] for line in lines[1:]] == ["search", "random", "exhaustive"]


def test_script_writes_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--spaces", "1", "--seeds", "2", "--trials", "3", "--search", "random", "--json"]
    assert load_script("benchmarks/search_replay.py").main(options) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "aoe.search_replay/1"
    (scored,) = document["scores"]
    assert scored["search"] == "random"
    assert 0 < scored["fraction_of_optimum"]["3"] <= 1
