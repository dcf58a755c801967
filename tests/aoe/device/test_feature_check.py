"""The C function that refuses a CPU: it asks for what it is given, and compilers take it."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import aoe.kernels
from aoe.device.feature_check import TILES_FEATURE, feature_check
from aoe.device.registry import default_device
from aoe.device.toolchain import Toolchain, halide_include

_OF_BF16 = (
    *("avx512_bf16", "avx512_vnni", "avx512_vbmi2", "avx512_bitalg", "avx512_vpopcntdq"),
    *("avx512ifma", "avx512vbmi", "gfni", "avx_vnni", "avx512_fp16", "amx_tile", "amx_bf16"),
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
