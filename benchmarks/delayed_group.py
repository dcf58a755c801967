"""A process group whose all-reduces take longer: a slow link where none can be shaped.

gloo does the work; then the communication thread sleeps for what the link would add. Like a real
link it has one channel: all-reduces wait for each other, and backward goes on meanwhile.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

BACKEND = "delayed"


class DelayedGroup(dist.ProcessGroup):  # type: ignore[misc]
    """gloo with a delay of `latency_us` and a time per byte in every all-reduce.

    Collectives of all kinds go through one thread, in the order they were asked for.

    Args:
        inner: The group that does the work.
        latency_us: Added to every all-reduce.
        megabits: Bandwidth of the link, Mbit/s; infinite if 0.
    """

    def __init__(self, inner: Any, *, latency_us: float, megabits: float) -> None:
        super().__init__(inner.rank(), inner.size())
        self._inner = inner
        self._latency_us = latency_us
        self._us_per_byte = 8 / megabits if megabits else 0.0
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="delayed all-reduce", daemon=True).start()

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Sum tensors over all processes, late."""
        if not isinstance(tensors, list):
            tensors = [tensors]
        size_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        delay_us = self._latency_us + self._us_per_byte * size_bytes
        options = (opts,) if opts is not None else ()
        return self._later(lambda: self._inner.allreduce(tensors, *options), tensors, delay_us)

    def broadcast(self, tensors: Any, opts: Any) -> Any:
        """Send tensors from one process to all, without a delay."""
        return self._later(lambda: self._inner.broadcast(tensors, opts), tensors)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather tensors of all processes, without a delay."""
        options = (opts,) if opts is not None else ()
        return self._later(lambda: self._inner.allgather(outputs, inputs, *options), outputs)

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all processes."""
        options = (opts,) if opts is not None else ()
        return self._later(lambda: self._inner.barrier(*options), [])

    def getBackendName(self) -> str:
        """Return what torch calls this kind of group."""
        return BACKEND

    def _later(self, start: Callable[[], Any], result: Any, delay_us: float = 0.0) -> Any:
        future: Any = torch.futures.Future()

        def work() -> None:
            try:
                start().wait()
                if delay_us:
                    time.sleep(delay_us / 1e6)
            except RuntimeError as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._waiting.put(work)
        return _create_work_from_future(future)

    def _serve(self) -> None:
        while True:
            self._waiting.get()()


def register_delayed(*, latency_us: float, megabits: float) -> None:
    """Make `delayed` a backend `init_process_group` knows."""

    def create(store: Any, rank: int, size: int, timeout: timedelta) -> DelayedGroup:
        inner = dist.ProcessGroupGloo(store, rank, size, timeout)
        return DelayedGroup(inner, latency_us=latency_us, megabits=megabits)

    dist.Backend.register_backend(BACKEND, create, devices=["cpu"])
