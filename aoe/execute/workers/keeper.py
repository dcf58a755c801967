"""The farm of a run, opened once for all its models, shapes and modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack

from aoe.device.protocol import Device
from aoe.execute.workers.farm import Farm, open_farm
from aoe.measurement import MeasurePolicy
from aoe.target import Target


class FarmKeeper:
    """Opens the workers of `--workers` when they are first wanted, and gives them back at the end.

    What a run has found out about a worker (set aside, calibrated, what it was sent) holds for all
    of the run.

    Args:
        open_farm: Opens them.
    """

    def __init__(self, open_farm: Callable[..., AbstractContextManager[Farm]] = open_farm) -> None:
        self._open_farm = open_farm
        self._opened = ExitStack()
        self._farm: Farm | None = None
        self._wanted: tuple[object, ...] = ()

    def __enter__(self) -> FarmKeeper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def farm(
        self,
        workers: str,
        device: Device,
        target: Target,
        *,
        versions: Mapping[str, str],
        policy: MeasurePolicy,
        tell: Callable[[str, bool], None],
    ) -> Farm:
        """Return the farm of the run; another one where this is for something else, or has ended.

        Args and raises as `open_farm`.
        """
        wanted = (workers, target, policy)
        if self._farm is not None and (self._farm.is_stopped or wanted != self._wanted):
            self.close()
        if self._farm is None:
            self._farm = self._opened.enter_context(
                self._open_farm(
                    workers, device, target, versions=versions, policy=policy, tell=tell
                )
            )
            self._wanted = wanted
        self._farm.tell_to(tell)
        self._farm.refresh()
        return self._farm

    def close(self) -> None:
        """Give the workers back."""
        self._farm = None
        self._opened.close()
