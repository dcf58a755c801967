"""What CPUs are called, from recorded `/proc/cpuinfo` texts."""

from __future__ import annotations

from itertools import combinations

import pytest
from support.engine import processors as recorded

from aoe.device.cpu.cpuinfo import CpuInfo, parse_cpuinfo
from aoe.device.cpu.microarchitectures import (
    EXTENSIONS,
    MICROARCHITECTURES,
    Microarchitecture,
    name_cpu,
)
from aoebank import old_soc_versions


def _info(text: str) -> CpuInfo:
    return parse_cpuinfo(text.splitlines())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (recorded.ZEN2, "x86-64-zen2"),
        (recorded.ZEN3, "x86-64-zen3"),
        (recorded.ZEN4, "x86-64-zen4"),
        (recorded.ZEN5, "x86-64-zen5"),
        (recorded.SKYLAKE_X, "x86-64-skylake-avx512"),
        (recorded.CASCADE_LAKE, "x86-64-cascadelake"),
        (recorded.ICE_LAKE, "x86-64-icelake"),
        (recorded.SAPPHIRE_RAPIDS, "x86-64-sapphirerapids"),
    ],
)
def test_x86_is_named_by_vendor_family_and_model(text: str, name: str) -> None:
    found = name_cpu(_info(text), "x86_64")
    assert (found.soc_version, found.caveat) == (name, "")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (recorded.ZEN4_OF_A_CLOUD, "x86-64-zen4"),
        (recorded.MASKED_ZEN4, "x86-64-zen4"),
        (recorded.MASKED_ZEN5, "x86-64-zen5"),
        (recorded.MASKED_CASCADE_LAKE, "x86-64-cascadelake"),
        (recorded.MASKED_SAPPHIRE_RAPIDS, "x86-64-sapphirerapids"),
    ],
)
def test_masked_features_do_not_change_the_name(text: str, name: str) -> None:
    found = name_cpu(_info(text), "AMD64")
    assert (found.soc_version, found.caveat) == (name, "")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (recorded.NEOVERSE_N1, "aarch64-neoverse-n1"),
        (recorded.NEOVERSE_V1, "aarch64-neoverse-v1"),
        (recorded.NEOVERSE_V2, "aarch64-neoverse-v2"),
        (recorded.MASKED_NEOVERSE_V2, "aarch64-neoverse-v2"),
        (recorded.COBALT, "aarch64-neoverse-n2"),
        (recorded.KUNPENG_920, "aarch64-tsv110"),
        (recorded.AMPERE_ONE, "aarch64-ampere1"),
        (recorded.APPLE_M1, "aarch64-m1"),
    ],
)
def test_arm_is_named_by_implementer_and_part(text: str, name: str) -> None:
    found = name_cpu(_info(text), "arm64")
    assert (found.soc_version, found.caveat) == (name, "")


def test_a_number_that_cannot_be_right_gives_way_to_the_features() -> None:
    found = name_cpu(_info(recorded.FALSE_ROCKET_LAKE), "x86_64")
    assert found.soc_version == "x86-64-icelake"
    assert found.caveat == (
        "GenuineIntel family 6 model 167 is rocketlake, which has no amx_tile, avx512_bf16, "
        "avx512_fp16, avx_vnni"
    )


def test_an_unknown_number_gives_way_to_the_features() -> None:
    found = name_cpu(_info(recorded.KVM_ICE_LAKE), "x86_64")
    assert found.soc_version == "x86-64-icelake"
    assert found.caveat == "GenuineIntel family 6 model 134 is not known"


def test_a_cpu_that_says_nothing_gets_the_least_name() -> None:
    found = name_cpu(CpuInfo(), "x86_64")
    assert (found.soc_version, found.caveat) == ("x86-64", "the CPU does not say what it is")
    features = _info(recorded.MASKED_ZEN5).features
    assert name_cpu(CpuInfo(features=features), "x86_64").soc_version == "x86-64-v4"


def test_a_zen_3_with_avx512_is_none() -> None:
    found = name_cpu(_info(recorded.ZEN4.replace(": 17\n", ": 1\n")), "x86_64")
    assert found.soc_version == "x86-64-zen4"
    assert "is zen3, which has no avx512_bf16, avx512_vnni, avx512f" in found.caveat


def test_no_cpu_has_two_names() -> None:
    for one, other in combinations(MICROARCHITECTURES, 2):
        if (one.vendor, one.family) == (other.vendor, other.family):
            shared = one.models & other.models
            assert not shared or not set(one.steppings) & set(other.steppings), (one, other)


def test_names_fit_a_bank_file_name() -> None:
    for one in MICROARCHITECTURES:
        assert one.name == one.name.lower()
        assert "_" not in one.name
        assert one.models


def test_extensions_are_those_looked_at() -> None:
    for one in MICROARCHITECTURES:
        assert one.extensions <= EXTENSIONS


def _ancestry(one: Microarchitecture) -> frozenset[str] | None:
    from archspec.cpu import TARGETS

    known = TARGETS.get(one.name.replace("-", "_"))
    if known is None:
        return None
    return frozenset(known.features).union(*(frozenset(old.features) for old in known.ancestors))


@pytest.mark.parametrize("one", MICROARCHITECTURES, ids=lambda one: one.name)
def test_extensions_agree_with_archspec_where_it_knows_them(one: Microarchitecture) -> None:
    theirs = _ancestry(one)
    if theirs is None:
        assert one.name in {
            *("cooperlake", "tigerlake", "rocketlake", "graniterapids", "sierraforest", "tsv110")
        }
    else:
        assert (theirs & EXTENSIONS) <= one.extensions


@pytest.mark.parametrize("one", MICROARCHITECTURES, ids=lambda one: one.name)
def test_every_cpu_has_an_old_name(one: Microarchitecture) -> None:
    architecture = "x86-64" if one.family else "aarch64"
    assert old_soc_versions(f"{architecture}-{one.name}")
