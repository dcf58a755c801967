"""Freed memory is kept where nobody has chosen otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
if not os.confstr_names.get("CS_GNU_LIBC_VERSION") or not os.confstr("CS_GNU_LIBC_VERSION"):
    pytest.skip("the C library is not glibc", allow_module_level=True)

_PAGES = """
import ctypes, os, resource
from aoe.torch.kept_memory import keep_freed_memory

print(keep_freed_memory(os.environ))
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
size = 64 << 20

def step():
    block = libc.malloc(size)
    libc.memset(block, 1, size)
    libc.free(block)

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_BLOCK_PAGES = (64 << 20) // os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("chosen", "is_kept"),
    [
        ({}, True),
        ({"MALLOC_TRIM_THRESHOLD_": "131072"}, False),
        ({"MALLOC_MMAP_THRESHOLD_": "131072"}, False),
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}, False),
        ({"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}, True),
    ],
)
def test_a_second_step_takes_no_pages_anew(chosen: dict[str, str], is_kept: bool) -> None:
    unset = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", _PAGES], env=env | chosen, check=True, capture_output=True, text=True
    )
    said, pages = done.stdout.split()
    assert said == str(is_kept)
    assert (int(pages) < _BLOCK_PAGES // 8) is is_kept
