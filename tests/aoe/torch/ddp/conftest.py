"""Two real processes for all tests of gradients: each of them has PyTorch to import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.ddp.cases import COMPRESSED, GRADIENTS, SAME_AS_DDP
from support.ddp.processes import run_processes

if TYPE_CHECKING:
    from support.ddp.processes import Found


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the processes leave banks and results, by case."""
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="session")
def found(folder: Path) -> Found:
    """Run every case in the same two processes."""
    return run_processes(folder, *SAME_AS_DDP, *COMPRESSED, *GRADIENTS)


@pytest.fixture
def alone() -> Iterator[None]:
    """Be a process group of one."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
