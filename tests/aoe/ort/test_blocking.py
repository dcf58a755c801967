"""The block size is found whatever thread pool the process uses."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.engine.cpu import CPU

PROBE = "from aoe.device.registry import DEVICES; print(DEVICES['cpu'].channel_block())"
SHARED = "from aoe.ort.sessions import use_shared_pool; use_shared_pool(2); "


@pytest.mark.parametrize("before", ["", SHARED], ids=["own pools", "shared pool"])
def test_block_size_does_not_depend_on_the_pool(before: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", before + PROBE], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == CPU.channel_block() > 0
