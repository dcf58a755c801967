"""The builder: from a workload and a schedule to a library."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.engine.cpu import open_session
from support.engine.fakes import make_target
from support.engine.families import chain_workload, schedules_of

import aoe.kernels
from aoe.device.compiler import (
    KernelSource,
    build_library,
    compile_kernel,
    kernel_name,
    kernel_table,
    required_features,
)
from aoe.device.feature_check import TILES_FEATURE, feature_check
from aoe.device.registry import default_device
from aoe.device.toolchain import Toolchain, halide_include
from aoe.errors import BuildError, ScheduleError
from aoe.graph.workload_model import candidate_model, workload_model
from aoe.ort.sessions import random_feed, run_session, session_options
from aoe.schedule import ComputeRoot, Schedule, Split, Vectorize
from aoe.target import InstructionSet, Target
from aoe.workload import Precision, TensorSpec, Workload

_EXP = chain_workload(("Exp",))


def _source(workload: Workload, schedule: Schedule | None = None) -> KernelSource:
    chosen = schedule or Schedule()
    return KernelSource.of(workload, chosen)


Build = Callable[[KernelSource], Path]


@pytest.fixture
def build(target: Target, toolchain: Toolchain, tmp_path: Path) -> Build:
    """Return a function that compiles one kernel and links it into a library."""

    def built(source: KernelSource) -> Path:
        file = tmp_path / "k.so"
        objects = [compile_kernel(source, target, tmp_path)]
        return build_library([source], objects, target=target, toolchain=toolchain, file=file)

    return built


def _run(workload: Workload, source: KernelSource, library: Path) -> tuple[object, object]:
    baseline = workload_model(workload, seed=0)
    plain = open_session(baseline.SerializeToString(), session_options(threads=2, optimize=False))
    tuned = open_session(
        candidate_model(baseline, source.name, source.workload).SerializeToString(),
        session_options(threads=2, optimize=False, library=library),
    )
    feed = random_feed(plain, 0)
    return run_session(plain, feed)[0], run_session(tuned, feed)[0]


def test_name_is_a_c_identifier_of_the_family_and_what_it_is() -> None:
    name = kernel_name(_EXP, Schedule())
    assert re.fullmatch(r"elementwise_[0-9a-f]{12}", name)
    assert name == kernel_name(chain_workload(("Exp",)), Schedule())
    assert name != kernel_name(chain_workload(("Tanh",)), Schedule())
    assert name != kernel_name(_EXP, Schedule((Vectorize("y", "i", 8),)))


def test_library_of_several_kernels_computes_what_onnxruntime_does(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    sources = []
    for workload in (_EXP, chain_workload(("Softplus", "Tanh"), shape=(3, 5, 7))):
        sources += [_source(workload, schedule) for schedule in schedules_of(workload, target, 2)]
    objects = [compile_kernel(source, target, tmp_path) for source in sources]
    library = build_library(
        sources, objects, target=target, toolchain=toolchain, file=tmp_path / "kernels.so"
    )
    for source in sources:
        expected, found = _run(source.workload, source, library)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_building_leaves_no_table_behind(build: Build, tmp_path: Path) -> None:
    build(_source(_EXP))
    assert {file.suffix for file in tmp_path.iterdir()} == {".so", ".o"}


def test_linking_twice_gives_the_same_bytes(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    source = _source(_EXP)
    object_ = compile_kernel(source, target, tmp_path)
    built = [
        build_library(
            [source], [object_], target=target, toolchain=toolchain, file=tmp_path / name
        ).read_bytes()
        for name in ("a.so", "b.so")
    ]
    assert built[0] == built[1]


def test_library_needs_nothing_but_the_c_library(build: Build, target: Target) -> None:
    """No Halide runtime, no second thread pool."""
    library = build(_source(_EXP, schedules_of(_EXP, target, 1)[0]))
    listed = subprocess.run(
        ["ldd", str(library)], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[0].rpartition("/")[2] for line in listed.splitlines()}
    assert all(re.match(r"(linux-vdso|libc|libm|ld-linux)", name) for name in names), names


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule((ComputeRoot("nowhere"),)),
        Schedule((Split("y", "nothing", "a", "b", 8),)),
        Schedule((Vectorize("y", "no_such_loop", 8),)),
    ],
)
def test_schedule_that_does_not_fit_is_a_schedule_error(
    target: Target, tmp_path: Path, schedule: Schedule
) -> None:
    with pytest.raises(ScheduleError):
        compile_kernel(_source(_EXP, schedule), target, tmp_path)


def test_table_lists_shapes_as_onnxruntime_and_as_the_kernel_see_them() -> None:
    text = kernel_table([_source(_EXP)], make_target(cpu_features=("avx2", "f16c", "fma")))
    row = "{ 4, { 1, 8, 32, 32 }, 1, { 8192 }, AOE_FLOAT32, AOE_FLOAT32, { 0 }, { 0 }, 0, 0 }"
    assert row in text
    assert "const int aoe_kernel_count = 1;" in text
    assert '__builtin_cpu_supports("avx2")' in text
    assert '__builtin_cpu_supports("fma")' in text
    assert "f16c" not in text


def test_table_asks_for_what_its_most_demanding_kernel_needs() -> None:
    dot = InstructionSet(features=("avx512_zen4",), cpu_features=("avx2", "avx512_bf16"))
    tiles = InstructionSet(cpu_features=("amx_tile",))
    target = make_target(bf16_dot=dot, bf16_tiles=tiles)
    exact, lower = _source(_EXP), _source(replace(_EXP, precision=Precision.BFLOAT16))
    in_tiles = replace(lower, schedule=Schedule(algorithm="product_tiles"))
    assert required_features([exact], target) == required_features([], target) == ("avx2",)
    assert required_features([exact, lower], target) == ("avx2", "avx512_bf16")
    assert required_features([in_tiles, exact], target)[-1] == "amx_tile"
    assert kernel_table([exact], target) == kernel_table([exact], make_target())
    assert 'return "avx512_bf16"' in kernel_table([exact, lower], target)


def test_kernel_of_lower_precision_may_use_what_the_cpu_has_for_it(tmp_path: Path) -> None:
    plain = make_target(features=("sse41",), cpu_features=(), vector_lanes=4)
    later = InstructionSet(features=("avx", "avx2", "fma", "f16c"), cpu_features=("avx2",))
    lower = replace(_EXP, precision=Precision.BFLOAT16)
    sizes = {
        name: _size_compiled(
            KernelSource(name="same", workload=workload, schedule=Schedule()),
            replace(plain, bf16_dot=dot),
            tmp_path,
        )
        for name, workload, dot in (
            ("float32", _EXP, None),
            ("float32 where there is more", _EXP, later),
            ("lower where there is no more", lower, None),
            ("lower", lower, later),
        )
    }
    assert len(set(list(sizes.values())[:3])) == 1
    assert sizes["lower"] != sizes["float32"]


def _size_compiled(source: KernelSource, target: Target, directory: Path) -> int:
    return compile_kernel(source, target, directory).stat().st_size


def test_table_of_a_scalar_kernel_is_valid_c(build: Build) -> None:
    workload = chain_workload(("Exp",), shape=())
    source = _source(workload)
    expected, found = _run(workload, source, build(source))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_library_for_a_cpu_with_more_features_says_which_one_is_missing(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    """A feature every compiler knows and no server CPU has any more."""
    richer = make_target(
        features=target.features, cpu_features=("sse4a",), vector_lanes=target.vector_lanes
    )
    source = _source(_EXP)
    object_ = compile_kernel(source, target, tmp_path)
    library = build_library(
        [source], [object_], target=richer, toolchain=toolchain, file=tmp_path / "k.so"
    )
    if "sse4a" in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has it")
    with pytest.raises(Exception, match="this CPU lacks sse4a"):
        session_options(threads=1, optimize=False, library=library)


def test_objects_that_do_not_fit_together_are_a_build_error(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    source = _source(_EXP)
    object_ = compile_kernel(source, target, tmp_path)
    for objects in ([], [object_, object_]):
        with pytest.raises(BuildError, match=r"linking kernels: .*failed with code"):
            build_library(
                [source], objects, target=target, toolchain=toolchain, file=tmp_path / "k.so"
            )


def test_candidate_model_keeps_the_constants_the_kernel_reads() -> None:
    spec = TensorSpec(shape=(4,))
    model = candidate_model(workload_model(_EXP, seed=0), _source(_EXP).name, _EXP)
    assert isinstance(model, onnx.ModelProto)
    assert [node.domain for node in model.graph.node] == ["aoe"]
    assert not model.graph.initializer
    assert spec.size == 4


_OF_BF16 = (
    *("avx512_bf16", "avx512_vnni", "avx512_vbmi2", "avx512_bitalg", "avx512_vpopcntdq"),
    *("avx512ifma", "avx512vbmi", "gfni", "avx_vnni", "avx512_fp16", "amx_tile", "amx_bf16"),
    "amx_int8",
)


def _missing(features: tuple[str, ...], toolchain: Toolchain, directory: Path) -> str | None:
    source, library = directory / "check.c", directory / "check.so"
    source.write_text("#include <stddef.h>\n" + feature_check(features, x86=True) + "\n")
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    flags += [f"-I{halide_include()}", "-o", str(library)]
    tiles = Path(aoe.kernels.__file__).parent / "glue" / "tiles.c"  # asks the operating system
    parts = [str(source), *([str(tiles)] if TILES_FEATURE in features else [])]
    toolchain.run([*flags, *parts], what="feature check")
    function = ctypes.CDLL(str(library)).aoe_missing_cpu_feature
    function.restype = ctypes.c_char_p
    found: bytes | None = function()
    return found.decode() if found is not None else None


def _lacks(feature: str) -> bool:
    return bool(default_device().missing_features((feature,)))


def test_float32_features_are_asked_of_the_compiler_alone() -> None:
    text = feature_check(("sse4_1", "f16c", "avx2"), x86=True)
    assert text.splitlines() == [
        "const char *aoe_missing_cpu_feature(void) {",
        "  __builtin_cpu_init();",
        '  if (!__builtin_cpu_supports("sse4.1")) return "sse4.1";',
        '  if (!__builtin_cpu_supports("avx2")) return "avx2";',
        "  return NULL;",
        "}",
    ]


def test_other_processors_are_asked_nothing() -> None:
    text = feature_check(("bf16",), x86=False)
    assert text.splitlines()[1:] == ["  return NULL;", "}"]


@pytest.mark.parametrize("feature", _OF_BF16)
def test_answer_is_the_kernel_s_own(feature: str, toolchain: Toolchain, tmp_path: Path) -> None:
    if _lacks("avx2"):
        pytest.skip("no x86 CPU of today")
    assert (_missing((feature,), toolchain, tmp_path) is not None) == _lacks(feature)


def test_first_missing_feature_is_named(toolchain: Toolchain, tmp_path: Path) -> None:
    lacking = next(filter(_lacks, ("sse4a", "avx512_fp16")), None)
    if lacking is None or _lacks("avx2"):
        pytest.skip("no CPU without one of them")
    assert _missing(("avx2", lacking), toolchain, tmp_path) == lacking
