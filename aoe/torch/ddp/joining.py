"""Uneven inputs: what tuning does where ranks run out of data at different steps.

Inside `torch.distributed.algorithms.Join` a rank that has no more inputs answers the collectives of
the others until all are done. It can answer those of training steps, not those of a tuner. So
inside `Join` the ranks tell each other after every step whether they go on. If all do, or none
does (the epoch is over for everybody), so does tuning; else it ends in all of them, at the same
step, and training goes on as if there had been no tuner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.algorithms.join import Join

from aoe.errors import LeftAloneError

_READY, _OVER = b"ready", b"over"


def is_joining(ddp: Any) -> bool:
    """True if a DDP module trains inside `Join`, where ranks may run out of inputs."""
    return bool(ddp._join_config.enable)


def uneven_inputs(steps: int) -> LeftAloneError:
    """Return the error of a run in which a rank had no more inputs while tuning."""
    return LeftAloneError(
        "torch.distributed.algorithms.Join",
        f"a rank has no more inputs after {steps} steps, before enough is known of the gradients",
        hint="give the ranks even inputs, or every rank more of them",
    )


def all_are_ready(ddp: Any, *, ready: bool) -> bool:
    """Tell the other ranks whether this one has inputs for tuning; return whether all have.

    Called once by every rank, at different times: one whose inputs are over does not wait.
    """
    store = distributed_c10d._get_default_store()
    store.set(_key(dist.get_rank()), _READY if ready else _OVER)
    ranks = dist.get_process_group_ranks(ddp.process_group) if ready else []
    found = [bytes(store.get(_key(rank))) == _READY for rank in ranks]
    return ready and all(found)


def has_more_everywhere(ddp: Any, *, more: bool, steps: int) -> bool:
    """True if the ranks go on; all of them call this between two steps.

    Args:
        ddp: The module.
        more: True if this rank has inputs for another step.
        steps: Taken so far, for the error.

    Raises:
        LeftAloneError: some do, some do not.
    """
    flags = torch.tensor([float(more), float(not more)], device=ddp.device)
    dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=ddp.process_group)
    some_more, some_over = (bool(flag) for flag in flags.tolist())
    if some_more and some_over:
        raise uneven_inputs(steps)
    return some_more


@contextmanager
def told_of_inputs_over(on_over: Callable[[tuple[Any, ...]], None]) -> Iterator[None]:
    """Call something with its modules whenever this rank comes to the end of a `Join`."""
    leave = Join.__exit__

    def watched(
        join: Any, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> Any:
        if kind is None and join._enable:
            on_over(tuple(join._joinables))
        return leave(join, kind, error, trace)

    Join.__exit__ = watched
    try:
        yield
    finally:
        Join.__exit__ = leave


def _key(rank: int) -> str:
    return f"aoe/join/{rank}"
