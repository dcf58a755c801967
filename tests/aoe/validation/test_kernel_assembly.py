"""Putting a tuned model together."""

from __future__ import annotations

import filecmp
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import onnx
import pytest
from support.engine.assembling import assembling
from support.engine.fakes import ScriptedRunner
from support.engine.models import conv_net
from support.engine.offline import first_guess, regions_of, view_of
from support.engine.scripted_runs import ScriptedCpu
from support.engine.tuning import make_kernel

from aoe.device.compiler import KernelSource
from aoe.device.forks import NO_TIME
from aoe.device.object_cache import ObjectCache
from aoe.errors import RunError
from aoe.execute.compiling import KernelCompilers
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrite import Replacement, rewrite
from aoe.graph.weights import WeightStore
from aoe.om.file import FALLBACK, LIBRARY, MODEL, WEIGHTS
from aoe.target import Target
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.validation.kernel_assembly import Assembly, LaidOutModel


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, target: Target) -> ModelGraph:
    """Return a small network as ONNX Runtime optimises it."""
    return view_of(conv_net(), tmp_path_factory.mktemp("graph"), target)


class LinkingCpu(ScriptedCpu):
    """A CPU that notes the kernels of each library that is to be linked."""

    linked: ClassVar[list[list[str]]] = []

    def build_library(
        self, sources: Sequence[KernelSource], objects: Sequence[Path], **rest: Any
    ) -> Path:
        assert all(file.exists() for file in objects)
        self.linked.append([source.name for source in sources])
        return ScriptedCpu.build_library(self, file=rest["file"])


@pytest.fixture
def linked() -> list[list[str]]:
    """Return the kernels of each library that was linked; linking itself is left out."""
    LinkingCpu.linked.clear()
    return LinkingCpu.linked


def _assembly(
    folder: Path, graph: ModelGraph, runner: ScriptedRunner, cache: ObjectCache | None = None
) -> AbstractContextManager[Assembly]:
    return assembling(folder, conv_net(), graph, runner, cache)


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


def test_kernels_are_compiled_and_linked_in_their_order(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    runner = ScriptedRunner(device=LinkingCpu())
    kernels = [replace(kernel, gain_us=number) for number, kernel in enumerate(_kernels(3))]
    with _assembly(tmp_path, graph, runner) as parts:
        assert parts.build(kernels) == {}
        assert (parts.directory / LIBRARY).exists()
    assert linked == [[kernel.source.name for kernel in kernels]]
    (call,) = runner.asked("compile_kernels")
    names = [name for name, _, _ in call.arguments["kernels"]]
    assert names == linked[0][::-1]  # what saves most comes first, should the time run out


def test_second_library_is_linked_from_what_is_there(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    runner = ScriptedRunner(device=LinkingCpu())
    kernels = _kernels(3)
    with _assembly(tmp_path, graph, runner) as parts:
        parts.build(kernels)
        assert parts.build(kernels[1:]) == {}
    assert len(runner.asked("compile_kernels")) == 1
    assert linked[1] == [kernel.source.name for kernel in kernels[1:]]


def test_kernels_in_the_cache_are_not_compiled(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    runner = ScriptedRunner(device=LinkingCpu(), object_code=b"code")
    cache = ObjectCache(tmp_path / "cache", runner.target, limit_bytes=1 << 20)
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        with _assembly(tmp_path / run, graph, runner, cache) as parts:
            assert parts.build(_kernels(2)) == {}
    assert len(runner.asked("compile_kernels")) == 1
    assert linked[0] == linked[1]


def test_without_time_nothing_is_compiled(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    runner = ScriptedRunner(device=LinkingCpu())
    with _assembly(tmp_path, graph, runner) as parts:
        errors = parts.build(_kernels(2), left_s=0.0)
    assert set(errors.values()) == {NO_TIME}
    assert runner.asked("compile_kernels") == [] and linked == []


def test_kernel_that_does_not_compile_is_left_out_and_reported(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    kernels = _kernels(3)
    bad = kernels[1].source.name
    runner = ScriptedRunner(
        device=LinkingCpu(), compile_error=lambda name: "illegal" if name == bad else ""
    )
    with _assembly(tmp_path, graph, runner) as parts:
        assert parts.build(kernels) == {bad: "illegal"}
    assert linked == [[kernels[0].source.name, kernels[2].source.name]]


def test_compiler_that_cannot_be_asked_leaves_its_kernels_out(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    def crash(name: str) -> str:
        raise RunError("compile_kernels", "the worker ended with signal 9")

    with _assembly(tmp_path, graph, ScriptedRunner(compile_error=crash)) as parts:
        errors = parts.build(_kernels(2))
    assert len(errors) == 2 and all("signal 9" in error for error in errors.values())
    assert linked == []


def test_no_kernels_means_no_library_and_an_old_one_goes(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    with _assembly(tmp_path, graph, ScriptedRunner(device=LinkingCpu())) as parts:
        parts.build(_kernels(2))
        assert parts.build([]) == {}
        assert not (parts.directory / LIBRARY).exists()
    assert len(linked) == 1


def test_nothing_is_linked_when_nothing_compiles(
    tmp_path: Path, graph: ModelGraph, linked: list[list[str]]
) -> None:
    runner = ScriptedRunner(device=LinkingCpu(), compile_error=lambda name: "illegal")
    with _assembly(tmp_path, graph, runner) as parts:
        assert len(parts.build(_kernels(2))) == 2
        assert not (parts.directory / LIBRARY).exists()
    assert linked == []


def test_untuned_model_is_there_from_the_start(tmp_path: Path, graph: ModelGraph) -> None:
    with _assembly(tmp_path, graph, ScriptedRunner(device=LinkingCpu())) as parts:
        assert parts.untuned.model == parts.directory / FALLBACK
        assert parts.untuned.optimize
        assert parts.untuned.library is None
    found = onnx.load(str(parts.directory / FALLBACK))
    assert [node.name for node in found.graph.node] == [node.name for node in conv_net().graph.node]


def test_model_with_kernels_names_the_library(
    tmp_path: Path, graph: ModelGraph, target: Target
) -> None:
    kernels = _real_kernels(graph, target)
    with _assembly(tmp_path, graph, ScriptedRunner(device=LinkingCpu())) as parts:
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
    with _assembly(tmp_path, graph, ScriptedRunner(device=LinkingCpu())) as parts:
        parts.write_model(kernels)
        size = (parts.directory / WEIGHTS).stat().st_size
        for number in range(3):
            parts.write_model(kernels[number:], f"variant{number}.onnx")
    assert (parts.directory / WEIGHTS).stat().st_size == size


def test_weights_are_looked_at_once_however_many_variants_there_are(
    tmp_path: Path, graph: ModelGraph, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, original, calls = _real_kernels(graph, target), WeightStore.externalize, []

    def externalize(store: WeightStore, proto: onnx.ModelProto) -> onnx.ModelProto:
        calls.append(proto)
        return original(store, proto)

    monkeypatch.setattr(WeightStore, "externalize", externalize)
    replacements = [
        Replacement(region=region, kernel=kernel.name)
        for kernel in sorted(kernels, key=lambda kernel: kernel.name)
        for region in kernel.regions
    ]
    with _assembly(tmp_path, graph, ScriptedRunner(device=LinkingCpu())) as parts:
        calls.clear()
        written = [parts.write_model(kernels, f"{number}.onnx").model for number in range(3)]
        assert calls == [graph.proto]
        assert filecmp.cmp(written[0], written[2], shallow=False)
    with WeightStore(tmp_path / "all_at_once.bin") as store:
        store.externalize(conv_net())
        whole = store.externalize(rewrite(graph, replacements))
    light = onnx.load(str(written[0]), load_external_data=False)
    assert [t.external_data[1:] for t in light.graph.initializer] == [
        t.external_data[1:] for t in whole.graph.initializer
    ]


def test_model_laid_out_before_gives_the_same_parts(tmp_path: Path, target: Target) -> None:
    proto, chosen = conv_net(), conv_net(seed=1)
    graph = view_of(chosen, tmp_path, target)
    kernels = _real_kernels(graph, target)

    def written(name: str) -> Path:
        folder = tmp_path / name
        laid = None
        if name == "laid out":
            folder.mkdir()
            store = WeightStore(folder / WEIGHTS)
            imported, start = store.settled(proto), store.settled(chosen)
            laid = LaidOutModel(store=store, imported=imported, start=start, write_s=1.0)
        compilers = KernelCompilers(ScriptedRunner(device=LinkingCpu()))
        with (
            closing(compilers),
            closing(
                Assembly(folder, proto, graph, compilers, chosen=chosen, laid_out=laid)
            ) as parts,
        ):
            parts.write_model(kernels)
        assert laid is None or parts.write_s >= laid.write_s
        return folder

    folders = written("as it was"), written("laid out")
    names = [FALLBACK, "chosen.onnx", MODEL, WEIGHTS]
    assert filecmp.cmpfiles(*folders, names, shallow=False) == (names, [], [])


def test_same_kernels_in_any_order_give_the_same_model(
    tmp_path: Path, graph: ModelGraph, target: Target
) -> None:
    kernels = _real_kernels(graph, target)
    with _assembly(tmp_path, graph, ScriptedRunner(device=LinkingCpu())) as parts:
        first = parts.write_model(kernels, "a.onnx").model
        second = parts.write_model(kernels[::-1], "b.onnx").model
        assert filecmp.cmp(first, second, shallow=False)


def test_model_without_kernels_is_the_imported_one(tmp_path: Path, graph: ModelGraph) -> None:
    with _assembly(tmp_path, graph, ScriptedRunner(device=LinkingCpu())) as made:
        part = made.write_model([])
    assert part.optimize and part.library is None
    assert part.model.read_bytes() == made.untuned.model.read_bytes()
