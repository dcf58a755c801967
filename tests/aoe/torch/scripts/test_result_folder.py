"""What a tuned training leaves: loaded, built upon and measured again by other processes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402

import aoe  # noqa: E402
from aoe.errors import FallbackWarning  # noqa: E402
from aoe.results.files import bank_of_results  # noqa: E402
from aoe.settings import environment  # noqa: E402
from aoe.torch.scripts.regions import TunedGraph  # noqa: E402
from aoe.torch.scripts.running import TunedScript  # noqa: E402


class Chosen(TunedGraph):
    """Uses every kernel that is right, without a clock, and counts what it is asked."""

    asked = 0

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        Chosen.asked += 1
        super().region(module, call, arguments)
        return True

    def graph(self, eager: Callable[[], object], compiled: Callable[[], object]) -> bool:
        self.is_used = True
        return True


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    threads = torch.get_num_threads()
    dynamo = import_module("torch._dynamo.config")
    torch.set_num_threads(1)
    torch.compiler.reset()
    with warnings.catch_warnings(), dynamo.patch(suppress_errors=False):  # a training sets it
        warnings.simplefilter("ignore", FallbackWarning)
        warnings.filterwarnings("ignore", "The .grad attribute")
        yield
    torch.compiler.reset()
    torch.set_num_threads(threads)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what goes to another machine of this kind: its bank and its cache are empty."""

    def go(name: str) -> None:
        (tmp_path / name / "bank").mkdir(parents=True)
        monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / name / "bank"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        torch.compiler.reset()
        Chosen.asked = 0

    return go


def _net(*widths: int) -> Any:
    layers: list[Any] = []
    for width in widths:
        layers += [nn.Linear(24, width), nn.GELU(), nn.Linear(width, 24)]
    return nn.Sequential(*layers)


def _train(net: Any, steps: int = 4) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(96, 24)).square().mean().backward()
        optimizer.step()


def _tuned(net: Any, folder: Path, output: str, **how: Any) -> TunedScript:
    script = TunedScript(
        "train.py",
        how.pop("options", {}),
        output=Path(output),
        env=environment(),
        cwd=folder,
        make_graph=Chosen,
        **how,
    )
    with script:
        _train(net)
    return script


def test_results_are_those_of_a_run_and_load_on_another_machine(
    tmp_path: Path, machine: Callable[[str], None]
) -> None:
    machine("first")
    _tuned(_net(160), tmp_path, "result")
    assert Chosen.asked == 2
    result = tmp_path / "result"
    summary = json.loads((result / "summary.json").read_text())
    assert summary["total_ops"] == summary["tuned_ops"] == summary["repo"]["add"] == 2
    assert summary["model"] == {"name": "train", "graph": "training"}
    details = json.loads((result / "op_tuning" / "training_loop_float32.json").read_text())
    assert [one["direction"] for one in details] == ["forward", "backward"]
    assert all(one["requires_grad"] and one["record"]["strategy"] for one in details)
    assert [line["event"] for one in details for line in one["provenance"]] == ["add", "add"]
    (own,) = (tmp_path / "first" / "bank").rglob("*training_loop.json")
    (copied,) = (result / "bank").rglob("*training_loop.json")
    assert copied.read_bytes() == own.read_bytes()
    document = json.loads((result / "training.json").read_text())
    keys = [key for region in document["graphs"][0]["regions"] for key in region["records"]]
    assert keys == [one["key"] for one in details] == [row["key"] for row in summary["operators"]]

    machine("second")
    loading = {"lookup_only": True, "bank": bank_of_results(result), "cache_dir": result}
    script = _tuned(_net(160), tmp_path, "loaded", options=loading)
    (graph,) = script.training.graphs
    assert [one.op_types for one in graph.regions if one.is_used] == [("loop",)] * 2
    assert all(one.is_known for one in graph.regions)
    assert not Chosen.asked


def test_earlier_result_leaves_what_changed_to_tune(
    tmp_path: Path, machine: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    machine("first")
    _tuned(_net(160), tmp_path, "result")
    machine("second")
    script = _tuned(_net(160, 224), tmp_path, "result2", base_result=Path("result"))
    assert Chosen.asked == 2
    assert {one.is_known for one in script.training.graphs[0].regions} == {True, False}
    told = capsys.readouterr().err
    assert f"aoe: against {tmp_path / 'result'}: 2 reused, 2 retuned, 0 new, 0 dropped" in told
    summary = json.loads((tmp_path / "result2" / "summary.json").read_text())
    assert summary["reuse"]["counts"] == {"reused": 2, "retuned": 2, "new": 0, "dropped": 0}
    reasons = {one["reason"] for one in summary["reuse"]["parts"] if one["kind"] == "retuned"}
    assert reasons == {"shape changed 160->224"}
    (copied,) = (tmp_path / "result2" / "bank").rglob("*training_loop.json")
    assert len(json.loads(copied.read_text())) == 4  # the earlier result is not needed again


def test_what_lost_then_is_not_tried_again_either(
    tmp_path: Path, machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("first")
    with monkeypatch.context() as patch:
        patch.setattr(Chosen, "region", lambda *_: False)
        _tuned(_net(160), tmp_path, "result")
    assert not (tmp_path / "result" / "bank").exists()
    machine("second")
    script = _tuned(_net(160), tmp_path, "result2", base_result=Path("result"))
    assert not Chosen.asked
    assert all(one.is_known for one in script.training.graphs[0].regions)


def test_result_folder_is_measured_again(tmp_path: Path, machine: Callable[[str], None]) -> None:
    machine("first")
    _tuned(_net(160), tmp_path, "result")
    machine("second")
    found = aoe.verify(tmp_path / "result", core_num=1)
    assert found.root == tmp_path / "result" / "bank"
    assert len(found.records) == 2
    assert all(one.found.measurement is not None for one in found.records)
