"""The remote pool of a run, opened once for all its models, shapes and modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

from aoe.device.protocol import Device
from aoe.execute.workers.remote_pool import OpenRemotePool, RemotePool, open_remote_pool
from aoe.measurement import MeasurePolicy
from aoe.target import Target


class PoolOnDemand:
    """Opens the workers of `--workers` on first use, and releases them at the end.

    What a run has found out about a worker (set aside, calibrated, what it was sent) holds for all
    of the run.

    Args:
        open_remote_pool: Opens them.
    """

    def __init__(self, open_remote_pool: OpenRemotePool = open_remote_pool) -> None:
        self._open_remote_pool = open_remote_pool
        self._opened = ExitStack()
        self._remote_pool: RemotePool | None = None
        self._wanted: tuple[object, ...] = ()
        self._on_event: Callable[[str, bool], None] = lambda text, is_warning: None

    def __enter__(self) -> PoolOnDemand:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def remote_pool(
        self,
        workers: str,
        device: Device,
        target: Target,
        *,
        versions: Mapping[str, str],
        policy: MeasurePolicy,
        on_event: Callable[[str, bool], None],
    ) -> RemotePool:
        """Return the pool of the run; another one where this is for something else, or has ended.

        Args and raises as `open_remote_pool`.
        """
        wanted, self._on_event = (workers, target, policy), on_event
        if self._remote_pool is not None and (
            self._remote_pool.is_stopped or wanted != self._wanted
        ):
            self.close()
        if self._remote_pool is None:
            self._remote_pool = self._opened.enter_context(
                self._open_remote_pool(
                    workers, device, target, versions=versions, policy=policy, on_event=on_event
                )
            )
            self._wanted = wanted
        self._remote_pool.tell_to(on_event)
        self._remote_pool.refresh()
        return self._remote_pool

    def close(self) -> None:
        """Give the workers back; what goes wrong in that is a warning: the result is there."""
        self._remote_pool = None
        try:
            self._opened.close()
        except Exception as error:  # whatever Dask raises
            reason = str(error) or type(error).__name__
            self._on_event(f"the workers could not be given back: {reason}", True)
