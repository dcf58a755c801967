"""Messages of the measuring process: its setup, requests and replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from aoe.device.kept_objects import KeptObjects
from aoe.device.protocol import Device
from aoe.device.toolchain import Toolchain
from aoe.errors import AoeError, RunError, RunTimeoutError, WorkerDiedError
from aoe.measurement import Measurement, Outcome
from aoe.ort.thread_pools import ThreadPool
from aoe.target import Target
from aoe.workload import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """Setup a worker knows from its start."""

    device: Device  # What it measures on
    target: Target  # Threads and CPU features
    compiler: tuple[str, ...]  # Command line of the C compiler
    kept: KeptObjects | None = None  # Objects the compiler has made, None where none are kept
    directory: Path  # The worker's own scratch directory
    cores: frozenset[int] = frozenset()  # What it keeps to; none for whatever the system gives it
    pool: ThreadPool = ThreadPool.SHARED  # Threads that sessions compute with


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A task by name with its arguments."""

    task: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A result, an error the engine knows, or the traceback of one it does not."""

    value: Any = None
    error: AoeError | None = None
    crash: str = ""


class Word(StrEnum):
    """Words exchanged while a task runs, so that another run may measure in between."""

    GIVE_WAY = "give way"
    AT_REST = "at rest"
    GO_ON = "go on"


class TaskRunner(Protocol):
    """Runs tasks in a measuring process: here (`Runner`), or on another machine."""

    @property
    def device(self) -> Device:
        """Device that is measured on."""
        ...

    @property
    def target(self) -> Target:
        """Target that is compiled and measured for."""
        ...

    @property
    def toolchain(self) -> Toolchain:
        """Toolchain that links libraries on this machine."""
        ...

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Run one task and return its result.

        Raises:
            RunTimeoutError: no answer in time.
            RunError: the process died, or the task failed.
        """
        ...

    def sibling(self) -> TaskRunner:
        """Return another runner for the same target, to compile in parallel."""
        ...

    def close(self) -> None:
        """End the process and remove its files."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernels:
    """Kernels that were compiled elsewhere."""

    directory: Path  # Where their object files are, `<name>.o`
    errors: Mapping[str, str]  # By name what is wrong with a kernel, empty if it is there
    # Kernels the clock or a compiler that died has kept from being compiled.
    late: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPart:
    """A model file and how to run it."""

    model: Path  # ONNX file
    # File beside it that has its weights and is to go with it to another machine, or None.
    weights: Path | None = None
    library: Path | None = None  # Kernel library, or None
    optimize: bool = True  # True to let ONNX Runtime optimise the graph, False to run it as written
    precision: Precision = Precision.FLOAT32  # The lowest of its kernels
    is_large: bool = False  # True where there is to be memory for one such model only
    # True if tensors of it are rounded to float16 or bfloat16, which the order of sums decides.
    is_narrow: bool = False


def failure_of(error: RunError) -> Measurement:
    """Return the failure of a call; it is the candidate's own only if the worker died."""
    late, died = isinstance(error, RunTimeoutError), isinstance(error, WorkerDiedError)
    outcome = Outcome.TIMEOUT if late else Outcome.RUNTIME
    return Measurement.failure(outcome, str(error), is_of_machine=not died)
