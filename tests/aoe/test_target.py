"""The target: this machine's CPU, and refusals of any other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import aoe.target
from aoe.errors import TargetError
from aoe.target import host_target, missing_cpu_features, resolve_target, usable_cores
from aoe.testing.fakes import make_target


def test_soc_version_is_stable_readable_and_fits_a_bank_file_name() -> None:
    first, second = host_target(), host_target()
    assert first == second
    assert "_" not in first.soc_version
    assert first.soc_version == first.soc_version.strip().lower()
    assert "/" not in first.soc_version
    assert len(first.soc_version) > 3


def test_core_num_is_every_usable_core_or_what_is_asked_for() -> None:
    assert host_target().core_num == usable_cores()
    assert host_target(1).core_num == 1


def test_vector_lanes_follow_the_features() -> None:
    target = host_target()
    assert target.vector_lanes in (4, 8, 16)
    assert (target.vector_lanes == 16) == ("avx512_skylake" in target.features)


def test_kernel_features_are_all_on_this_cpu() -> None:
    assert missing_cpu_features(host_target().cpu_features) == ()


def test_missing_features_keep_their_order() -> None:
    assert missing_cpu_features(("zzz", *host_target().cpu_features, "aaa")) == ("zzz", "aaa")


def test_halide_accepts_the_target_name() -> None:
    hl = pytest.importorskip("halide")
    target = hl.Target(host_target().halide_name)
    assert target.natural_vector_size(hl.Float(32)) == host_target().vector_lanes


def test_builtin_names_are_spelled_as_the_c_compiler_wants_them() -> None:
    target = make_target(cpu_features=("sse4_1", "avx2"))
    assert target.builtin_names == ("sse4.1", "avx2")


def test_caches_have_plausible_sizes() -> None:
    target = host_target()
    assert 8 << 10 <= target.l1_bytes <= 1 << 20
    assert target.l1_bytes < target.l2_bytes


@pytest.mark.parametrize("name", [None, "", "host"])
def test_no_soc_version_means_this_machine(name: str | None) -> None:
    assert resolve_target(name, None) == host_target()


def test_own_soc_version_is_accepted() -> None:
    assert resolve_target(host_target().soc_version, 1) == host_target(1)


@pytest.mark.parametrize("name", ["Ascend910B1", "ascend310p3", "Ascend910_9391"])
def test_ascend_without_cann_says_what_to_install_and_what_still_works(name: str) -> None:
    with pytest.raises(TargetError, match="needs a CANN toolkit") as caught:
        resolve_target(name, None)
    assert name in str(caught.value)
    assert "set_env.sh" in str(caught.value.hint)
    assert "aoebank" in str(caught.value.hint)


def test_other_cpu_is_refused_with_this_one_s_name() -> None:
    with pytest.raises(TargetError, match="another target") as caught:
        resolve_target("x86-64-pentium4", None)
    assert f"expected {host_target().soc_version}" in str(caught.value)


def test_affinity_limits_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert usable_cores() == 1


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 8), ("200000 100000", 2), ("50000 100000", 1), ("nonsense", 8)],
)
def test_a_container_s_quota_limits_the_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str, cores: int
) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr("builtins.open", lambda name: file.open())
    assert usable_cores() == cores


def test_unreadable_caches_fall_back_to_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aoe.target, "_CACHE_ROOT", "/nowhere")
    target = host_target()
    assert (target.l1_bytes, target.l2_bytes) == (32 << 10, 1 << 20)
