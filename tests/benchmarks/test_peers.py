"""The command of the suite: what it lists, refuses, resumes and goes on after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import peers
import pytest
from comparison.prepared import PreparationError, PreparedNetwork
from comparison.results import load_results
from comparison.rounds import Comparison, RoundSettings
from networks.registry import NETWORKS
from peers import Suite
from runtimes.registry import PEERS

Run = Callable[..., dict[tuple[str, int], dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path, suite: Suite) -> Run:
    """Run the command without any runtime; return the records."""

    def call(*words: str) -> dict[tuple[str, int], dict[str, Any]]:
        file = tmp_path / "peers.json"
        places = ["--results", str(file), "--work", str(tmp_path / "work")]
        assert peers.main([*words, *places], suite) == 0
        records = load_results(file)["records"]
        return {(record["network"], record["threads"]): record for record in records}

    return call


@pytest.fixture
def compared() -> list[tuple[str, int]]:
    """Return what was compared so far."""
    return []


@pytest.fixture
def suite(tmp_path: Path, compared: list[tuple[str, int]]) -> Suite:
    """Return a suite that measures nothing."""

    def compare(comparison: Comparison, settings: RoundSettings, say: Any) -> dict[str, Any]:
        compared.append((comparison.network.name, comparison.threads))
        used = {"rounds": settings.rounds, "turn_s": settings.turn_s, "budget_s": settings.budget_s}
        return {
            "network": comparison.network.name,
            "threads": comparison.threads,
            "settings": used,
            "peers": {name: {"options": dict(p.options)} for name, p in comparison.peers.items()},
        }

    return Suite(
        prepare=_made,
        compare=compare,
        open_roof=lambda folder: None,
        results=tmp_path / "kept" / "peers.json",
    )


def _made(name: str, folder: Path) -> PreparedNetwork:
    if name == "gpt2":
        raise PreparationError("no memory")
    return PreparedNetwork(name=name, folder=folder, facts={"sha256": "0"})


def test_list_names_every_network_and_peer(capsys: pytest.CaptureFixture[str]) -> None:
    assert peers.main(["--list"]) == 0
    first = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line}
    assert first == {*NETWORKS, *PEERS}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--threads", "0"], "--threads: got [0], expected 1 to"),
        (["--threads", "100000"], "the usable cores"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--networks", "nothing"], "invalid choice: 'nothing'"),
    ],
    ids=["none", "many", "rounds", "network"],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        peers.main(words)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_damaged_results_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "peers.json"
    file.write_text("{")
    assert peers.main(["--results", str(file), "--threads", "1"]) == 3
    assert "peers.json: cannot be read" in capsys.readouterr().err


def test_run_resumes_where_it_ended(run: Run, compared: list[tuple[str, int]]) -> None:
    run("--networks", "resnet18", "--threads", "1")
    run("--networks", "bert6", "resnet18", "--threads", "1")
    assert compared == [("resnet18", 1), ("bert6", 1)]
    run("--networks", "resnet18", "--threads", "1", "--again")
    run("--networks", "resnet18", "--threads", "1", "--rounds", "7")
    assert compared[2:] == [("resnet18", 1), ("resnet18", 1)]


def test_no_network_begins_after_the_minutes(run: Run, compared: list[tuple[str, int]]) -> None:
    words = ("--networks", "resnet18", "--threads", "1", "--peers", "engine")
    run(*words)
    assert set(run("--networks", "resnet18", "bert6", *words[2:], "--minutes", "0")) == {
        ("resnet18", 1)
    }
    assert compared == [("resnet18", 1)]


def test_fewer_peers_need_no_new_measurement(run: Run, compared: list[tuple[str, int]]) -> None:
    run("--networks", "resnet18", "--threads", "1", "--peers", "openvino")
    run("--networks", "resnet18", "--threads", "1", "--peers", "ort")
    assert len(compared) == 1
    run("--networks", "resnet18", "--threads", "1", "--peers", "engine")
    assert len(compared) == 2


def test_network_that_cannot_be_built_is_a_row(run: Run, compared: list[tuple[str, int]]) -> None:
    records = run("--networks", "gpt2", "resnet18", "--threads", "1")
    assert records["gpt2", 1]["failure"] == "no memory"
    assert "failure" not in records["resnet18", 1]


def test_precision_adds_a_row_of_the_engine(run: Run, compared: list[tuple[str, int]]) -> None:
    mode = "allow_fp32_to_bf16"
    records = run("--networks", "resnet18", "--threads", "1", "--precision_mode", mode)
    rows = records["resnet18", 1]["peers"]
    assert rows["engine"]["options"] == {}
    assert rows[f"engine-{mode}"]["options"] == {"precision_mode": mode}


def test_smoke_leaves_the_results_alone(
    tmp_path: Path, suite: Suite, compared: list[tuple[str, int]]
) -> None:
    assert peers.main(["--smoke", "--work", str(tmp_path / "work")], suite) == 0
    assert len(compared) == 2
    assert not suite.results.exists()
    assert (tmp_path / "work" / "peers-smoke.json").exists()
