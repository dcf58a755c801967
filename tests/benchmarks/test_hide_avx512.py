"""Copies of libraries that take a CPU for one of AVX2 alone."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from hide_avx512 import avx2_alone, make_copies

_ASKS = """
#include <stdint.h>
uint32_t other(void) { return 0x0f01d0; }
uint32_t leaf(uint32_t n) {
  uint32_t a = n, b, c = 0, d;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return a;
}
uint32_t extensions(void) {
  uint32_t a = 7, b, c = 1, d;
  __asm__ volatile("mov $7, %%eax\\n mov $1, %%ecx\\n cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d));
  return a;
}
uint32_t state(void) { uint32_t a = 0, d; __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0)); return a; }
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an importable package with a library."""
    if platform.machine() != "x86_64" or not (shutil.which("gcc") and shutil.which("objdump")):
        pytest.skip("needs x86-64, gcc and objdump")
    folder = tmp_path / "site" / "asks_cpu"
    (folder / "libs").mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def _compile(text: str, library: Path) -> None:
    words = ["gcc", "-shared", "-O2", "-x", "c", "-", "-o", str(library)]
    subprocess.run(words, input=text, text=True, check=True)


def test_copy_is_told_of_nothing_beyond_avx2_and_the_original_stays(
    package: Path, tmp_path: Path
) -> None:
    library = package / "libs" / "libasks.so.1"
    _compile(_ASKS, library)
    before = library.read_bytes()
    copy = make_copies(tmp_path, ["asks_cpu"]) / "asks_cpu" / "libs" / library.name
    loaded = ctypes.CDLL(str(copy))
    assert loaded.state() & 0xFF == 0x07
    assert loaded.other() == 0x0F01D0  # the same bytes, which are no instruction
    changed = [at for at, one in enumerate(copy.read_bytes()) if one != before[at]]
    assert loaded.extensions() == 0
    assert loaded.leaf(0) == ctypes.CDLL(str(library)).leaf(0) >= 7
    assert len(changed) == 5
    assert library.read_bytes() == before
    copy.write_bytes(b"used")
    assert make_copies(tmp_path, ["asks_cpu"]) and copy.read_bytes() == b"used"  # made once


def test_package_that_asks_nothing_is_an_error_and_no_copy(package: Path, tmp_path: Path) -> None:
    _compile("int one(void) { return 1; }", package / "libs" / "libasks.so")
    with pytest.raises(SystemExit, match="asks_cpu: no library of 1 asks XGETBV"):
        make_copies(tmp_path, ["asks_cpu"])
    assert not (tmp_path / "avx2-alone").exists()


def test_cpuinfo_names_nothing_beyond_avx2() -> None:
    text = "model : 17\nflags\t\t: avx avx2 avx512f avx512_bf16 avx_vnni amx_tile gfni sse4a\n"
    assert avx2_alone(text) == "model : 17\nflags\t\t: avx avx2 sse4a\n"
