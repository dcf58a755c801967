"""The target, a value: it says the same on every machine."""

from __future__ import annotations

import platform

import pytest

from aoe.testing.fakes import make_target


def test_builtin_names_are_spelled_as_the_c_compiler_wants_them() -> None:
    target = make_target(cpu_features=("sse4_1", "avx2"))
    assert target.builtin_names == ("sse4.1", "avx2")


def test_halide_name_is_the_target_s_own_whatever_machine_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert make_target(features=("avx", "fma")).halide_name == "x86-64-linux-avx-fma"
    assert make_target(architecture="arm-64", features=()).halide_name == "arm-64-linux"
