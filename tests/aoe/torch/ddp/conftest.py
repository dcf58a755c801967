"""Two real processes for all tests of a file: each of them has PyTorch to import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.ddp.processes import run_processes

if TYPE_CHECKING:
    from support.ddp.processes import Found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the processes leave banks and results, by case."""
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def found(folder: Path, request: pytest.FixtureRequest) -> Found:
    """Run the cases of a file (`CASES`) in the same two processes."""
    return run_processes(folder, *request.module.CASES)


@pytest.fixture
def alone() -> Iterator[None]:
    """Be a process group of one."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
