"""Agreement between the processes of a group: one clock, one decision, one failure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from aoe.errors import AoeError, OptionError, RunError, RunTimeoutError

_FAILURE_WAIT_S = 5.0
"""Seconds for which a process whose communication broke waits for another process to say why."""
_POLL_S = 0.05
_LOST = re.compile(r"gloo|nccl|connection|timed out|peer|process ?group", re.IGNORECASE)
"""Words in the error of a collective that lost a process. Source: messages of gloo and NCCL."""


class Ranks:
    """The processes that train one model.

    Args:
        group: The process group of the model; None for the default one.
        device: Where its collectives want their tensors.
        timeout_s: A collective that takes longer than this has lost a process; None for the
            group's own time-out.

    Raises:
        OptionError: there is no process group.
    """

    def __init__(self, group: Any | None, device: Any, *, timeout_s: float | None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise OptionError(
                "torch.distributed",
                "there is no process group",
                hint="call torch.distributed.init_process_group first, or start with torchrun",
            )
        self.group = group if group is not None else dist.group.WORLD
        self.device = device
        self.rank: int = dist.get_rank(self.group)
        self.world_size: int = dist.get_world_size(self.group)
        self.backend: str = dist.get_backend(self.group)
        self._first = dist.get_global_rank(self.group, 0)
        self._timeout_s = timeout_s

    @property
    def is_first(self) -> bool:
        """True in the one process that writes and prints."""
        return self.rank == 0

    def max(self, values: Sequence[float]) -> tuple[float, ...]:
        """Return the largest of each value over all processes, float64; equal in all of them."""
        tensor = torch.tensor(list(values), dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.group)
        return tuple(tensor.tolist())

    def from_first(self, value: Any) -> Any:
        """Return the value of the first process; what the others give is ignored."""
        box = [value if self.is_first else None]
        dist.broadcast_object_list(box, src=self._first, group=self.group, device=self.device)
        return box[0]

    def of_all(self, value: Any) -> list[Any]:
        """Return the value of each process, by rank; equal in all of them."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def barrier(self) -> None:
        """Wait until every process is here."""
        self.max([0.0])

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Run something all processes take part in; what fails in one fails in all.

        A process that fails says so in the store all of them share. The others notice when
        their connection breaks or their collective takes longer than the time-out.

        Raises:
            RunError: another process failed, with its message.
            RunTimeoutError: another process is gone without a word.
        """
        store = distributed_c10d._get_default_store()
        # a new key per use, numbered alike everywhere: all processes come here equally often
        rank = dist.get_rank()
        use = store.add(f"aoe/gradients/{rank}", 1)
        key = f"aoe/gradients/failure/{use}"
        with self._time_limit():
            try:
                yield
            except RuntimeError as error:
                if not _LOST.search(str(error)):
                    _on_event(store, key, rank, error)
                    raise
                raise self._failure(error, _told(store, key)) from error
            except BaseException as error:  # the group may be gone: a script ended it
                _on_event(store, key, rank, error)
                raise

    def agree(self, error: Exception | None) -> None:
        """Raise in all processes if the first one brings an error: there the error itself.

        Raises:
            RunError: the first process has a problem, in the others.
        """
        problem = self.from_first(None if error is None else f"{type(error).__name__}: {error}")
        if error is not None and self.is_first:
            raise error
        if problem is not None:
            raise RunError(f"rank {self._first}", problem, hint="look at the output of that rank")

    def _failure(self, error: RuntimeError, reason: str | None) -> AoeError:
        """Return the error of a process whose communication broke."""
        if reason is not None:
            return RunError("process group", reason, hint="look at the output of that rank")
        kind = RunTimeoutError if "timed out" in str(error).lower() else RunError
        return kind(
            "process group",
            f"another process is gone or does not answer: {error}",
            hint="look at the output of the other ranks",
        )

    @contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Shorten the time-out of the group: its own default is half an hour."""
        before = timeout_of(self.group, self.device)
        if self._timeout_s is None or before is None:
            yield
            return
        _set_timeout(timedelta(seconds=self._timeout_s), self.group)
        try:
            yield
        finally:
            _set_timeout(before, self.group)


def _set_timeout(timeout: timedelta, group: Any) -> None:
    """Set the time-out of a group; a public function since torch 2.14."""
    if hasattr(dist, "set_timeout"):
        dist.set_timeout(timeout, group)
    else:
        distributed_c10d._set_pg_timeout(timeout, group)


def timeout_of(group: Any, device: Any) -> timedelta | None:
    """Return the time-out of a group, None where torch does not tell."""
    try:
        backend = group._get_backend(torch.device(device))
    except (AttributeError, RuntimeError):  # a group written in Python is its own backend
        return None
    found = getattr(getattr(backend, "options", None), "_timeout", None)
    return found if isinstance(found, timedelta) else None


def _on_event(store: Any, key: str, rank: int, error: BaseException) -> None:
    """Leave the reason of a failure where the other processes look for it."""
    text = f"rank {rank} failed: {type(error).__name__}: {error}"
    with suppress(RuntimeError):  # the process that keeps the store may be the one that is gone
        store.set(key, text)


def _told(store: Any, key: str) -> str | None:
    """Return the reason another process left, waiting a little for it."""
    end = time.monotonic() + _FAILURE_WAIT_S
    with suppress(RuntimeError):
        while time.monotonic() < end:
            if store.check([key]):
                return bytes(store.get(key)).decode("utf-8", "replace")
            time.sleep(_POLL_S)
    return None
