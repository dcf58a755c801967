"""The target, a value: it says the same on every machine."""

from __future__ import annotations

import platform

import pytest
from support.engine.fakes import make_target

from aoe.target import HOST_INT8, InstructionSet, unmet_cores
from aoe.workload import Precision

_DOT = InstructionSet(features=("avx512_zen4",), cpu_features=("avx2", "avx512_bf16"))
_VNNI = InstructionSet(features=("avx512_zen4",), cpu_features=("avx2", "avx512_vnni"))
_TILES = InstructionSet(cpu_features=("amx_tile",))


def test_halide_name_is_the_target_s_own_whatever_machine_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert make_target(features=("avx", "fma")).halide_name == "x86-64-linux-avx-fma"
    assert make_target(architecture="arm-64", features=()).halide_name == "arm-64-linux"


def test_float32_kernels_are_compiled_as_ever_whatever_the_cpu_can() -> None:
    target = make_target(bf16_dot=_DOT, bf16_tiles=_TILES)
    for precision in (Precision.FLOAT32, Precision.STRICT_FLOAT32):
        assert target.for_kernel(precision, "gemm_tiles") is target


def test_kernels_of_lower_precision_get_what_they_need_once() -> None:
    target = make_target(bf16_dot=_DOT, bf16_tiles=_TILES)
    dot = target.for_kernel(Precision.BFLOAT16, "direct_bf16")
    assert dot.halide_name == "x86-64-linux-avx2-avx512_zen4"
    assert dot.cpu_features == ("avx2", "avx512_bf16")
    tiles = target.for_kernel(Precision.BFLOAT16, "gemm_tiles")
    assert (tiles.features, tiles.cpu_features) == (dot.features, (*dot.cpu_features, "amx_tile"))


def test_kernels_in_int8_get_its_instructions_and_no_tiles() -> None:
    target = make_target(bf16_dot=_DOT, bf16_tiles=_TILES, int8_dot=_VNNI)
    quantised = target.for_kernel(Precision.INT8, "panels_int8")
    assert target.for_kernel(Precision.INT4, "panels_int4") == quantised
    assert quantised.halide_name == "x86-64-linux-avx2-avx512_zen4"
    assert quantised.cpu_features == ("avx2", "avx512_vnni")


def test_algorithms_of_integers_fit_cpus_with_vnni_or_those_without() -> None:
    with_it, without = make_target(int8_dot=_VNNI), make_target()
    for kind in ("direct", "depthwise", "panels"):
        vnni, widened = f"{kind}_vnni", f"{kind}_widened"
        assert with_it.misfit(vnni) == without.misfit(widened) == ""
        assert without.misfit(vnni) == f"{vnni} is for CPUs with AVX-512 VNNI"
        assert with_it.misfit(widened) == f"{widened} is for CPUs without VNNI"
    assert with_it.misfit("") == without.misfit("winograd_4x4") == ""


def test_algorithms_in_tiles_fit_cpus_with_amx_and_need_its_features() -> None:
    tiles = InstructionSet(cpu_features=("amx_tile", "amx_int8"))
    target = make_target(int8_dot=_VNNI, int8_tiles=tiles)
    assert target.misfit("direct_amx") == target.misfit("panels_vnni") == ""
    refusal = "panels_amx is for CPUs with AMX, where the system grants its tiles"
    assert make_target(int8_dot=_VNNI).misfit("panels_amx") == refusal
    needed = target.for_kernel(Precision.FLOAT32, "panels_amx")
    assert needed.cpu_features == ("avx2", "avx512_vnni", "amx_tile", "amx_int8")
    assert needed.features == target.for_kernel(Precision.FLOAT32, "panels_vnni").features


def test_operators_of_onnx_runtime_need_what_makes_their_sums_right_and_no_more() -> None:
    sums = InstructionSet(cpu_features=("avx_vnni",))
    target = make_target(int8_dot=_VNNI, int8_sums=sums)
    needed = target.for_kernel(Precision.INT8, HOST_INT8)
    assert needed.cpu_features == (*target.cpu_features, "avx_vnni")
    for precision, name in (
        (Precision.INT8, f"{HOST_INT8}_of_7_bits"),
        (Precision.INT4, "host_int4"),
    ):
        assert target.for_kernel(precision, name).cpu_features == target.cpu_features


def test_bfloat16_is_a_precision_where_it_has_instructions_and_integers_everywhere() -> None:
    integers = (Precision.INT8, Precision.INT4)
    both = (Precision.FLOAT32, Precision.BFLOAT16, *integers)
    assert make_target().precisions == (Precision.FLOAT32, *integers)
    assert make_target(int8_dot=_VNNI).precisions == (Precision.FLOAT32, *integers)
    assert make_target(bf16_dot=_DOT).precisions == make_target(bf16_tiles=_TILES).precisions
    assert make_target(bf16_dot=_DOT, int8_dot=_VNNI).precisions == both
    plain = make_target()
    assert plain.for_kernel(Precision.BFLOAT16) == plain


def test_cores_that_are_not_there_are_told() -> None:
    assert unmet_cores(1000, 2) == "2 threads instead of 1000: there are no more usable cores"
    assert unmet_cores(2, 2) == unmet_cores(None, 2) == ""


@pytest.mark.parametrize("algorithm", ["direct_tiles", "panels_tiles"])
def test_algorithms_in_tiles_of_bfloat16_fit_cpus_with_amx_alone(algorithm: str) -> None:
    assert make_target(bf16_dot=_DOT, bf16_tiles=_TILES).misfit(algorithm) == ""
    assert "is for CPUs with AMX" in make_target(bf16_dot=_DOT).misfit(algorithm)
