"""A training script that runs as it is, and whose gradients are tuned on the way.

The script knows nothing of its tuner. It keeps its thread, the tuner gets one of its own, and only
one of them runs at any time: the script waits at the start of a step until the tuner wants one, the
tuner waits until the script comes to the start of the next.

Inside `torch.distributed.algorithms.Join` a rank that has no more inputs answers the collectives of
the others until all are done. It can answer those of training steps, not those of a tuner. So
inside `Join` the ranks tell each other after every step whether they go on. If all do, or none
does (the epoch is over for everybody), so does tuning; else it ends in all of them, at the same
step, and training goes on as if there had been no tuner.
"""

from __future__ import annotations

import atexit
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from aoe.errors import AoeError, EndedEarlyError, LeftAloneError, OptionError, RunError
from aoe.gradients.training import Training
from aoe.torch.ddp.gradients import StrategyWarning, reduced_training
from aoe.torch.ddp.sharding import refused_sharding
from aoe.torch.scripts.main_program import run_script

if TYPE_CHECKING:
    from aoe.torch.scripts.running import TunedScript

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingScript:
    """A script that trains a `DistributedDataParallel` model, for `aoe.tune`.

    It is run as `python SCRIPT ARGUMENTS` would, in every process of the group, and the first
    DDP model it trains is tuned. Its first steps are used for recording and measuring; they are
    its own steps, with its own data, and train as they always do. The grouping found stays in
    use until the script ends.

    Where its operators are tuned as well, that comes first: kernels decide how long backward takes
    and which gradients it hands over together, so a grouping is judged on steps that have them.
    """

    path: Path  # The script
    arguments: tuple[str, ...] = ()  # Its command line
    goes_on: bool = True  # False to end the script once its gradients are tuned, or looked at
    operators: TunedScript | None = None  # Tunes its operators in the first steps

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.name

    def run(self, tune: Callable[[Training], T]) -> tuple[T, int]:
        """Run it; return what `tune` made of its training, and its exit code.

        The script runs to its end, or as far as `tune` needs it where it does not go on.

        Raises:
            RunError: the script failed, tuning failed, or no DDP model is trained. Its `exit_code`
                is the script's own where that is not 0.
            EndedEarlyError: the script ended before tuning was done.
            LeftAloneError, OptionError: its DDP model cannot be tuned and trained on as it is.
                These three have the script's own `exit_code`, 0 included, where the script goes
                on: a launcher calls the training failed that ends with another. One that uses FSDP
                was ended, and has 2. Where operators are tuned, a script without a DDP model is
                such an early end, too.
        """

        def tune_module(ddp: Any, step: Any) -> T:
            if self.operators is not None:
                self.operators.end_comparison()  # the script waits: nothing else runs
            with reduced_training(ddp, step, timeout_s=None) as training:
                try:
                    return tune(training)
                except LeftAloneError:
                    training.leave_alone()
                    raise

        steps = _WARMUP_STEPS if self.operators is None else self.operators.first_steps
        gate = StepGate(tune_module, ends_script=not self.goes_on, warmup_steps=steps)
        with refused_sharding(), gate.watching():
            exit_code = self.run_alone()
        if gate.error is not None:
            raise _ending_as(gate.error, exit_code, goes_on=self.goes_on)
        if not gate.is_tuned:
            short = _too_short(self.path, gate.steps, is_alone=self.operators is None)
            raise _ending_as(short, exit_code, goes_on=self.goes_on)
        return cast(T, gate.result), exit_code

    def run_alone(self) -> int:
        """Run it without tuning its gradients; return its exit code.

        Raises:
            RunError: the script failed; its `exit_code` is 1.
        """
        with self.operators or nullcontext():
            return run_script(self.path, self.arguments)


def _too_short(script: Path, steps: int, *, is_alone: bool) -> RunError:
    """Return the error of a script that has trained too little, which may have been no failure."""
    problem = f"ended after {steps} training steps of DistributedDataParallel"
    kind = EndedEarlyError if steps or not is_alone else RunError
    hint = "train with torch.nn.parallel.DistributedDataParallel, in this process"
    return kind(str(script), problem, expected="some hundred", hint=None if steps else hint)


def _ending_as(error: BaseException, exit_code: int, *, goes_on: bool) -> BaseException:
    """Return an error that ends the command as the script ended.

    Where that was well: with 0 if a training that goes on was only not tuned, else with 3.
    """
    is_left = goes_on and isinstance(error, EndedEarlyError | LeftAloneError | OptionError)
    if isinstance(error, AoeError):
        error.exit_code = exit_code if is_left else exit_code or RunError.exit_code
    return error


_READY, _OVER = b"ready", b"over"
"""Words of a rank inside `Join` about its inputs."""
_WARMUP_STEPS = 2
"""Steps the script runs alone: DDP fills its buckets again after the first one."""
_JOIN_S = 10.0
"""A tuner whose script ended can be stuck in a collective: it is left behind after so long."""


class _Arrival(Enum):
    """Place of the script's thread, when it comes back from a step."""

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
        warmup_steps: Steps the script runs alone; the same in all processes of its group.
    """

    def __init__(
        self,
        tune: Callable[[Any, Callable[[], None]], T],
        *,
        ends_script: bool = False,
        warmup_steps: int = _WARMUP_STEPS,
    ) -> None:
        self._tune = tune
        self._ends_script = ends_script
        self._warmup_steps = warmup_steps
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

        def watched(ddp: Any, /, *inputs: Any, **options: Any) -> Any:
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
        if self.steps < self._warmup_steps:
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
        if dist.get_rank(self._ddp.process_group) == 0:  # all processes say the same of it
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
