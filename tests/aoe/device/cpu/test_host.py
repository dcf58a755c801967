"""The description of this machine's CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.engine.processors import (
    COOPER_LAKE,
    MASKED_ZEN4,
    NEOVERSE_N1,
    NEOVERSE_V1,
    SAPPHIRE_RAPIDS,
    ZEN4,
)

from aoe.device.cpu.host import (
    describe_host,
    missing_features,
    system_grants_tiles,
    usable_cores,
)
from aoe.target import Target
from aoe.workload import Precision

Describe = Callable[..., Target]


@pytest.fixture
def cpu(tmp_path: Path) -> Path:
    """Return a file for what the kernel says of a CPU."""
    return tmp_path / "cpuinfo"


@pytest.fixture
def described(cpu: Path) -> Describe:
    """Return a function that describes two cores of a CPU: (its text, its architecture)."""

    def describe(text: str, machine: str = "x86_64", *, tiles_granted: bool = True) -> Target:
        cpu.write_text(text)
        return describe_host(2, cpuinfo=cpu, machine=machine, tiles_granted=lambda: tiles_granted)

    return describe


def test_soc_version_is_stable_readable_and_fits_a_bank_file_name() -> None:
    first, second = describe_host(), describe_host()
    assert first == second
    assert "_" not in first.soc_version
    assert first.soc_version == first.soc_version.strip().lower()
    assert "/" not in first.soc_version
    assert len(first.soc_version) > 3


def test_core_num_is_what_is_asked_for_and_at_most_every_usable_core() -> None:
    assert describe_host().core_num == usable_cores()
    assert describe_host(1).core_num == 1
    assert describe_host(100_000).core_num == usable_cores()


def test_vector_lanes_follow_the_features() -> None:
    target = describe_host()
    assert target.vector_lanes in (4, 8, 16)
    assert (target.vector_lanes == 16) == ("avx512_skylake" in target.features)


def test_kernel_features_are_all_on_this_cpu() -> None:
    assert missing_features(describe_host().cpu_features) == ()


def test_missing_features_keep_their_order() -> None:
    assert missing_features(("zzz", *describe_host().cpu_features, "aaa")) == ("zzz", "aaa")


def test_halide_accepts_the_target_name() -> None:
    hl = pytest.importorskip("halide")
    target = hl.Target(describe_host().halide_name)
    assert target.natural_vector_size(hl.Float(32)) == describe_host().vector_lanes


def test_masked_features_change_what_is_compiled_but_not_the_name(
    cpu: Path, described: Describe
) -> None:
    whole, masked = described(ZEN4), described(MASKED_ZEN4)
    assert whole.soc_version == masked.soc_version == "x86-64-zen4"
    assert (whole.vector_lanes, masked.vector_lanes) == (16, 8)
    assert whole.features == (*masked.features, "avx512", "avx512_skylake")
    assert masked.cpu_features == ("sse4_1", "avx", "f16c", "fma", "avx2")
    assert missing_features(whole.cpu_features, cpu) == (
        *("avx512f", "avx512cd", "avx512vl", "avx512bw", "avx512dq"),
    )
    assert (whole.cpu_model, whole.caveat) == ("AMD EPYC 9R14", "")


def test_arm_has_its_own_architecture(described: Describe) -> None:
    target = described(NEOVERSE_N1, "aarch64")
    assert (target.soc_version, target.halide_name) == ("aarch64-neoverse-n1", "arm-64-linux")
    assert (target.features, target.vector_lanes) == ((), 4)


def test_a_machine_that_says_nothing_is_the_least_of_its_architecture(cpu: Path) -> None:
    assert not cpu.exists()
    target = describe_host(1, cpuinfo=cpu, machine="x86_64")
    assert (target.soc_version, target.features) == ("x86-64", ())
    assert target.caveat == "the CPU does not say what it is"
    assert target.cpu_model


def test_caches_have_plausible_sizes() -> None:
    target = describe_host()
    assert 8 << 10 <= target.l1_bytes <= 1 << 20
    assert target.l1_bytes < target.l2_bytes


def test_affinity_limits_the_cores() -> None:
    assert usable_cores({3}) == 1


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 8), ("200000 100000", 2), ("50000 100000", 1), ("nonsense", 8)],
)
def test_a_container_s_quota_limits_the_cores(tmp_path: Path, quota: str, cores: int) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    assert usable_cores(range(8), file) == cores


def test_unreadable_caches_fall_back_to_defaults() -> None:
    target = describe_host(caches=Path("/nowhere"))
    assert (target.l1_bytes, target.l2_bytes) == (32 << 10, 1 << 20)


def test_bf16_is_compiled_for_the_processor_that_has_it(cpu: Path, described: Describe) -> None:
    """LLVM's Zen 4 knows SSE4a, its Sapphire Rapids half precision: neither knows the other's."""
    zen4, xeon = described(ZEN4), described(SAPPHIRE_RAPIDS)
    assert zen4.bf16_dot is not None
    assert xeon.bf16_dot is not None
    assert (zen4.bf16_dot.features, zen4.bf16_tiles) == (("avx512_zen4",), None)
    assert missing_features(zen4.bf16_dot.cpu_features, cpu) == ("sse4a",)
    assert xeon.bf16_dot.features == ("avx512_sapphirerapids",)
    assert xeon.bf16_tiles is not None
    assert xeon.features == zen4.features


def test_tiles_need_the_cpu_and_the_system(described: Describe) -> None:
    xeon = described(SAPPHIRE_RAPIDS)
    assert xeon.int8_tiles is not None
    assert xeon.int8_tiles.cpu_features == ("amx_tile", "amx_int8")
    kept_back = described(SAPPHIRE_RAPIDS, tiles_granted=False)
    assert (kept_back.int8_tiles, kept_back.bf16_tiles) == (None, None)
    assert kept_back.int8_dot == xeon.int8_dot
    hidden = described(SAPPHIRE_RAPIDS.replace("amx_int8 ", ""))
    assert hidden.int8_tiles is None
    assert hidden.bf16_tiles is not None
    assert described(ZEN4).int8_tiles is None


def test_the_system_grants_no_tiles_a_cpu_has_not() -> None:
    assert not system_grants_tiles() or "amx_tile" in Path("/proc/cpuinfo").read_text()


def test_int8_needs_instructions_halide_makes_use_of(described: Describe) -> None:
    """Others have VNNI too, but there it emits nothing of it."""
    for text, feature in ((ZEN4, "avx512_zen4"), (SAPPHIRE_RAPIDS, "avx512_sapphirerapids")):
        found = described(text).int8_dot
        assert found is not None
        assert found.features == (feature,)
        assert "avx512_vnni" in found.cpu_features
    for text in (MASKED_ZEN4, COOPER_LAKE):
        assert described(text).int8_dot is None


def test_onnx_runtime_s_own_products_need_vnni_and_nothing_besides(described: Describe) -> None:
    for text in (ZEN4, SAPPHIRE_RAPIDS, COOPER_LAKE):
        found = described(text).int8_sums
        assert found is not None
        assert (found.features, found.cpu_features) == ((), ("avx512_vnni",))
    assert described(COOPER_LAKE.replace("avx512_vnni", "")).int8_sums is None
    short = described(COOPER_LAKE.replace("avx512_vnni", "avx_vnni")).int8_sums
    assert short is not None and short.cpu_features == ("avx_vnni",)
    assert described(NEOVERSE_V1, "aarch64").int8_sums is None


def test_without_what_kernels_may_use_there_is_no_bf16(described: Describe) -> None:
    for text in (MASKED_ZEN4, COOPER_LAKE):
        target = described(text)
        assert (target.bf16_dot, target.bf16_tiles) == (None, None)


def test_arm_has_bf16_where_the_cpu_says_so(described: Describe) -> None:
    assert described(NEOVERSE_N1, "aarch64").bf16_dot is None
    target = described(NEOVERSE_V1, "aarch64")
    found = target.bf16_dot
    assert found is not None
    assert found.cpu_features == ("bf16",)
    assert target.int8_dot is None


def test_halide_accepts_the_targets_of_bf16(described: Describe) -> None:
    hl = pytest.importorskip("halide")
    for text in (ZEN4, SAPPHIRE_RAPIDS):
        name = described(text).for_kernel(Precision.BFLOAT16).halide_name
        assert hl.Target(name).natural_vector_size(hl.Float(32)) == 16


@pytest.mark.parametrize("text", [ZEN4, SAPPHIRE_RAPIDS], ids=["zen4", "sapphire rapids"])
def test_targets_of_bf16_emit_its_dot_product_and_float32_does_not(
    described: Describe, tmp_path: Path, text: str
) -> None:
    hl = pytest.importorskip("halide")
    target = described(text)
    counts = {}
    for precision in (Precision.FLOAT32, Precision.BFLOAT16):
        name = f"{target.for_kernel(precision).halide_name}-no_runtime-no_asserts-no_bounds_query"
        file = tmp_path / f"{precision.value}.s"
        row, weights = (hl.ImageParam(hl.BFloat(16), rank, f"x{rank}") for rank in (1, 2))
        o, r = hl.Var("o"), hl.RDom([(0, 2), (0, 32)], "r")
        sums = hl.Func("sums")
        sums[o] = 0.0
        factors = (row[2 * r[1] + r[0]], weights[r[0] + 2 * o, r[1]])
        sums[o] += hl.cast(hl.Float(32), factors[0]) * hl.cast(hl.Float(32), factors[1])
        sums.update().reorder(r[0], o, r[1]).atomic().vectorize(r[0]).vectorize(o, 16)
        sums.compile_to_assembly(str(file), [row, weights], "sums", hl.Target(name))
        counts[precision] = file.read_text().count("vdpbf16ps")
    assert counts[Precision.FLOAT32] == 0
    assert counts[Precision.BFLOAT16] > 0
