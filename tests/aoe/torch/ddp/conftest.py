"""Two real processes for all tests of gradients: each of them has PyTorch to import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.ddp.cases import COMPRESSED, GRADIENTS, SAME_AS_DDP
from support.ddp.processes import run_processes
from support.once import made_once

if TYPE_CHECKING:
    from support.ddp.processes import Found


@pytest.fixture(scope="session")
def _run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found]:
    cases = (*SAME_AS_DDP, *COMPRESSED, *GRADIENTS)
    return made_once(tmp_path_factory, "two", lambda folder: run_processes(folder, *cases))


@pytest.fixture(scope="session")
def folder(_run: tuple[Path, Found]) -> Path:
    """Return where the processes leave banks and results, by case."""
    return _run[0]


@pytest.fixture(scope="session")
def found(_run: tuple[Path, Found]) -> Found:
    """Return what every case gave, all run in the same two processes."""
    return _run[1]


@pytest.fixture
def alone() -> Iterator[None]:
    """Be a process group of one."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
