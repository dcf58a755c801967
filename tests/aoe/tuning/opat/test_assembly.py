"""Putting a tuned model together."""

from __future__ import annotations

import signal
import threading
from contextlib import closing
from pathlib import Path

import onnx
import pytest
from support.engine.models import conv_net
from support.engine.offline import first_guess, regions_of, view_of
from support.engine.tuning import make_kernel

from aoe.device.compiler import KernelSource
from aoe.device.cpu.device import Cpu
from aoe.errors import RunError
from aoe.graph.model_graph import ModelGraph
from aoe.om.file import FALLBACK, LIBRARY, MODEL, WEIGHTS
from aoe.target import Target
from aoe.testing.fakes import ScriptedRunner, make_target
from aoe.tuning.opat.assembly import Assembly, ChosenKernel


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, target: Target) -> ModelGraph:
    """Return a small network as ONNX Runtime optimises it."""
    return view_of(conv_net(), tmp_path_factory.mktemp("graph"), target)


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the kernels of each library that was linked; linking itself is left out."""
    found: list[list[str]] = []

    def build_library(
        device: Cpu, sources: list[KernelSource], objects: list[Path], **rest: object
    ) -> None:
        assert all(file.exists() for file in objects)
        found.append([source.name for source in sources])
        Path(str(rest["file"])).write_bytes(b"library")

    monkeypatch.setattr(Cpu, "build_library", build_library)
    return found


def _assembly(folder: Path, graph: ModelGraph, runner: ScriptedRunner) -> Assembly:
    return Assembly(folder / "parts", conv_net(), graph, runner)  # type: ignore[arg-type]


def _kernels(count: int) -> list[ChosenKernel]:
    return [make_kernel(number) for number in range(count)]


def _real_kernels(graph: ModelGraph, target: Target) -> list[ChosenKernel]:
    found: dict[str, ChosenKernel] = {}
    for region in regions_of(graph):
        source = first_guess(region, target)
        found.setdefault(
            source.name,
            ChosenKernel(
                source=source, key=source.name, regions=(region,), op_names=("n",), gain_us=1.0
            ),
        )
    return list(found.values())


def test_kernels_are_compiled_by_a_fresh_worker_and_linked(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    runner = ScriptedRunner()
    kernels = _kernels(3)
    with closing(_assembly(tmp_path, graph, runner)) as parts:
        assert parts.build(kernels) == {}
        assert (parts.directory / LIBRARY).exists()
    assert runner.restarts == 1
    assert linked == [[kernel.source.name for kernel in kernels]]


def test_kernel_that_does_not_compile_is_left_out_and_reported(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    kernels = _kernels(3)
    bad = kernels[1].source.name
    runner = ScriptedRunner(compile_error=lambda name: "illegal" if name == bad else "")
    with closing(_assembly(tmp_path, graph, runner)) as parts:
        assert parts.build(kernels) == {bad: "illegal"}
    assert linked == [[kernels[0].source.name, kernels[2].source.name]]


def test_compiler_that_crashes_is_asked_one_by_one(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    kernels = _kernels(3)
    bad = kernels[2].source.name

    def crash(name: str) -> str:
        if name == bad:
            raise RunError("compile_kernels", "the worker ended with signal 11")
        return ""

    runner = ScriptedRunner(compile_error=crash)
    with closing(_assembly(tmp_path, graph, runner)) as parts:
        errors = parts.build(kernels)
    assert list(errors) == [bad]
    assert "signal 11" in errors[bad]
    assert linked == [[kernels[0].source.name, kernels[1].source.name]]


def test_no_kernels_means_no_library_and_an_old_one_goes(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    with closing(_assembly(tmp_path, graph, ScriptedRunner())) as parts:
        parts.build(_kernels(2))
        assert parts.build([]) == {}
        assert not (parts.directory / LIBRARY).exists()
    assert len(linked) == 1


def test_nothing_is_linked_when_nothing_compiles(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    runner = ScriptedRunner(compile_error=lambda name: "illegal")
    with closing(_assembly(tmp_path, graph, runner)) as parts:
        assert len(parts.build(_kernels(2))) == 2
        assert not (parts.directory / LIBRARY).exists()
    assert linked == []


@pytest.mark.parametrize(
    ("kernels", "cores", "workers"), [(5, 8, 1), (6, 8, 2), (13, 8, 3), (13, 2, 2), (40, 4, 4)]
)
def test_many_kernels_are_shared_among_workers_few_are_not(
    tmp_path: Path,
    graph: ModelGraph,
    linked: list[list[str]],
    kernels: int,
    cores: int,
    workers: int,
) -> None:
    runner = ScriptedRunner(target=make_target(core_num=cores))
    chosen = _kernels(kernels)
    with closing(_assembly(tmp_path, graph, runner)) as parts:
        assert parts.build(chosen) == {}
    shares = [len(call.arguments["kernels"]) for call in runner.asked("compile_kernels")]
    assert len(shares) == workers
    assert sum(shares) == kernels
    assert max(shares) - min(shares) <= 1
    assert linked == [[kernel.source.name for kernel in chosen]]


def test_untuned_model_is_there_from_the_start(tmp_path: Path, graph: ModelGraph) -> None:
    with closing(_assembly(tmp_path, graph, ScriptedRunner())) as parts:
        assert parts.untuned.model == parts.directory / FALLBACK
        assert parts.untuned.optimize
        assert parts.untuned.library is None
    found = onnx.load(str(parts.directory / FALLBACK))
    assert [node.name for node in found.graph.node] == [node.name for node in conv_net().graph.node]


def test_model_with_kernels_names_the_library(
    tmp_path: Path, graph: ModelGraph, target: Target
) -> None:
    kernels = _real_kernels(graph, target)
    with closing(_assembly(tmp_path, graph, ScriptedRunner())) as parts:
        tuned = parts.write_model(kernels)
        plain = parts.write_model([], "plain.onnx")
    assert tuned.model == parts.directory / MODEL
    assert tuned.library == parts.directory / LIBRARY
    assert not tuned.optimize
    assert plain.library is None
    found = onnx.load(str(tuned.model), load_external_data=False)
    assert {node.op_type for node in found.graph.node if node.domain == "aoe"} == {
        kernel.source.name for kernel in kernels
    }


def test_variants_store_no_weights_again(tmp_path: Path, graph: ModelGraph, target: Target) -> None:
    kernels = _real_kernels(graph, target)
    with closing(_assembly(tmp_path, graph, ScriptedRunner())) as parts:
        parts.write_model(kernels)
        size = (parts.directory / WEIGHTS).stat().st_size
        for number in range(3):
            parts.write_model(kernels[number:], f"variant{number}.onnx")
    assert (parts.directory / WEIGHTS).stat().st_size == size


def test_same_kernels_in_any_order_give_the_same_model(
    tmp_path: Path, graph: ModelGraph, target: Target
) -> None:
    kernels = _real_kernels(graph, target)
    with closing(_assembly(tmp_path, graph, ScriptedRunner())) as parts:
        first = parts.write_model(kernels, "a.onnx").model.read_bytes()
        second = parts.write_model(kernels[::-1], "b.onnx").model.read_bytes()
    assert first == second


def test_model_without_kernels_is_the_imported_one(tmp_path: Path, graph: ModelGraph) -> None:
    with closing(Assembly(tmp_path / "parts", conv_net(), graph, ScriptedRunner())) as made:
        part = made.write_model([])
    assert part.optimize and part.library is None
    assert part.model.read_bytes() == made.untuned.model.read_bytes()


def test_interrupted_compiling_does_not_wait_for_its_workers(
    graph: ModelGraph, tmp_path: Path
) -> None:
    class Compiling(ScriptedRunner):
        """Compiles until it is abandoned."""

        def __init__(self) -> None:
            super().__init__()
            self.given_up = threading.Event()

        def call(self, task: str, *, timeout_s: float, **arguments: object) -> object:
            del task, arguments
            assert self.given_up.wait(timeout_s)
            raise RunError("compile_kernels", "given up")

        def abandon(self) -> None:
            self.given_up.set()

    runner = Compiling()
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()
    with closing(_assembly(tmp_path, graph, runner)) as assembly, pytest.raises(KeyboardInterrupt):
        assembly.build(_kernels(2))
    assert runner.given_up.is_set()
