"""Lets a tuner run the training steps of a script that knows nothing of it.

The script keeps its thread, the tuner gets one of its own, and only one of them runs at any
time: the script waits at the start of a step until the tuner wants one, the tuner waits until
the script comes to the start of the next.
"""

from __future__ import annotations

import atexit
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import torch
from torch.nn.parallel import DistributedDataParallel

from aoe.errors import AoeError, EndedEarlyError, LeftAloneError, OptionError
from aoe.torch.ddp.gradients import StrategyWarning
from aoe.torch.ddp.joining import (
    all_are_ready,
    has_more_everywhere,
    is_joining,
    told_of_inputs_over,
    uneven_inputs,
)

_WARMUP_STEPS = 2
"""Steps the script runs alone: DDP fills its buckets again after the first one."""
_JOIN_S = 10.0
"""A tuner whose script ended can be stuck in a collective: it is left behind after so long."""
T = TypeVar("T")


class _Arrival(Enum):
    """Where the script's thread is, when it comes back from a step."""

    NEXT_STEP = auto()
    INPUTS_OVER = auto()
    END = auto()


class StepGate(Generic[T]):
    """Cuts the run of a script into training steps and hands them to a tuner.

    A step starts with the first forward after a backward whose gradients were reduced, so with
    gradient accumulation it holds all the forwards of one update. The first
    `DistributedDataParallel` module that trains is the one that is tuned. A module that cannot be
    tuned trains on as it is: the reason is said at once, and is the gate's `error`.

    Args:
        tune: Tunes a module; gets the module and a function that runs one step.
        ends_script: True to end the script, as `sys.exit(0)` in it does, once `tune` is done or the
            module turns out to be one that cannot be tuned.
    """

    def __init__(
        self, tune: Callable[[Any, Callable[[], None]], T], *, ends_script: bool = False
    ) -> None:
        self._tune = tune
        self._ends_script = ends_script
        self._ddp: Any = None
        self._handles: list[Any] = []
        self._reduces = False
        self._went_back = False
        self._thread: threading.Thread | None = None
        self._arrived: SimpleQueue[_Arrival] = SimpleQueue()
        self._go: SimpleQueue[None] = SimpleQueue()
        self._is_done = False
        self.is_tuned = False
        self.steps = 0
        self.result: T | None = None
        self.error: BaseException | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every forward of `DistributedDataParallel` in this process; ends the tuner."""
        forward = DistributedDataParallel.forward

        def watched(ddp: Any, *inputs: Any, **options: Any) -> Any:
            self._before_forward(ddp)
            return forward(ddp, *inputs, **options)

        DistributedDataParallel.forward = watched
        try:
            with told_of_inputs_over(self._on_inputs_over):
                yield
        finally:
            DistributedDataParallel.forward = forward
            self._end()
            if self._ddp is not None:
                _keep_until_exit(self._ddp)

    def _before_forward(self, ddp: Any) -> None:
        """Note a forward that trains; at the start of a step, wait for the tuner."""
        if self._is_done:
            self._end_script()  # once more: a loop of the script may have caught it
            return
        if not torch.is_grad_enabled() or self._ddp not in (None, ddp):
            return
        if self._ddp is None:
            self._ddp = ddp
            self._listen(ddp)
        if self._reduces and self._went_back:
            self._at_boundary()
        self._reduces = bool(ddp.require_backward_grad_sync)
        self._went_back = False

    def _listen(self, ddp: Any) -> None:
        def on_gradient(parameter: Any) -> None:
            self._went_back = True

        for parameter in ddp.module.parameters():
            if parameter.requires_grad:
                self._handles.append(parameter.register_post_accumulate_grad_hook(on_gradient))

    def _at_boundary(self) -> None:
        self.steps += 1
        if self.steps < _WARMUP_STEPS:
            return
        if self._thread is None:
            if is_joining(self._ddp) and not all_are_ready(self._ddp, ready=True):
                self._leave_alone(uneven_inputs(self.steps))
                return
            self._thread = threading.Thread(target=self._run, name="aoe-gradients", daemon=True)
            self._thread.start()
        else:
            self._arrived.put(_Arrival.NEXT_STEP)
        self._go.get()
        if self._is_done:
            self._end()
            if isinstance(self.error, LeftAloneError | OptionError):
                self._leave_alone(self.error)
            elif self.error is not None:
                raise self.error
            self._end_script()

    def _on_inputs_over(self, modules: tuple[Any, ...]) -> None:
        """Note the end of a `Join`, before this rank answers for the others' steps."""
        if self._is_done:
            self._end_script()
            return
        if self._ddp is None or not any(one is self._ddp for one in modules):
            return
        if self._thread is None:
            all_are_ready(self._ddp, ready=False)
            self._leave_alone(uneven_inputs(self.steps))
            return
        self._arrived.put(_Arrival.INPUTS_OVER)
        self._go.get()
        if self._is_done and isinstance(self.error, LeftAloneError):
            self._leave_alone(self.error)

    def _leave_alone(self, error: AoeError) -> None:
        """Let the script train on without tuning, and say why; or end it."""
        self.error, self._is_done = error, True
        self._end()
        self._end_script()
        told = f"not tuned: {error}; the script goes on with DDP's own buckets"
        warnings.warn(told, StrategyWarning, stacklevel=4)

    def _end_script(self) -> None:
        """End a script that is not to go on."""
        if self._ends_script:
            raise SystemExit(0)

    def _run(self) -> None:
        """Tune, in the tuner's thread; whatever happens, the script goes on."""
        try:
            device = torch.device(self._ddp.device)
            if device.type != "cpu":  # the current device is a matter of the thread
                getattr(torch, device.type).set_device(device)
            self.result = self._tune(self._ddp, self._step)
            self.is_tuned = True
        except BaseException as error:  # handed to the script's thread
            self.error = error
        finally:
            self._is_done = True
            self._go.put(None)

    def _step(self) -> None:
        """Let the script run one step; in the tuner's thread."""
        is_whole = False
        while not is_whole:
            self._go.put(None)
            arrival = self._arrived.get()
            if arrival is _Arrival.END:
                missing = "enough was known" if self._ends_script else "tuning was finished"
                raise EndedEarlyError("script", f"ended after {self.steps} steps, before {missing}")
            # inputs over everywhere: the next step is in the next epoch
            is_whole = not is_joining(self._ddp) or has_more_everywhere(
                self._ddp, more=arrival is _Arrival.NEXT_STEP, steps=self.steps
            )

    def _end(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._thread is not None and not self._is_done:
            self._arrived.put(_Arrival.END)
        if self._thread is not None:
            self._thread.join(_JOIN_S)


def _keep_until_exit(ddp: Any) -> None:
    """Keep a module, and with it the process group of a script that is over.

    gloo's threads let go of the script's last tensors a moment after the script went on, and need
    the GIL for it. A group that goes just then waits for them with the GIL held, for ever
    (torch 2.13).
    """
    atexit.register(lambda: ddp)
