"""Interface of a device: what every kind of device does for the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aoe.measurement import CpuUse
from aoe.measurement.memory import MemoryUse
from aoe.target import Target

if TYPE_CHECKING:
    import onnx
    import onnxruntime as ort

    from aoe.device.compiler import KernelSource
    from aoe.device.toolchain import Toolchain


class Soundness(StrEnum):
    """Severity of a finding."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    STOPS = "stops"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckUp:
    """One thing that was looked at."""

    name: str  # Of the thing
    found: str  # What it is, in words
    verdict: Soundness = Soundness.GOOD  # Whether a run would go well, may suffer, or would stop
    advice: str = ""  # What to do; empty if nothing


class CoreSplit(NamedTuple):
    """Numbers of cores: measured ones, and ones free for something else meanwhile."""

    measured: frozenset[int] = frozenset()
    spare: frozenset[int] = frozenset()


class Device(Protocol):
    """A processor kernels run on, with the runtime that hosts them.

    A device holds no state: it is sent to the measuring process as it is.
    """

    def describe(self, core_num: int | None = None) -> Target:
        """Describe what is there; `core_num` None stands for every usable core."""
        ...

    def serves(self, soc_version: str) -> bool:
        """True if a target is of this kind, on this machine or on another."""
        ...

    def cores(self, *, all_of_them: bool = False) -> tuple[str, ...]:
        """Return names of the cores this process may use, or of all there are."""
        ...

    def check_up(self) -> tuple[CheckUp, ...]:
        """Return the checks of the device and its host that concern measurements or runs."""
        ...

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers a run may be pinned to."""
        ...

    def pinned(self, number: int, where: str) -> AbstractContextManager[None]:
        """Return a `with` block in which this process, and what it starts, uses one device only.

        Args:
            number: Of the device.
            where: Option or variable that names it, for messages.

        Raises:
            OptionError: there is no such device, or it may not be used.
        """
        ...

    def apart(self, threads: int) -> CoreSplit:
        """Return cores for so many threads, and cores on which work does not disturb them."""
        ...

    def keep_to(self, cores: frozenset[int]) -> None:
        """Keep this process to cores from `apart`."""
        ...

    def missing_features(self, needed: tuple[str, ...]) -> tuple[str, ...]:
        """Return the features of kernels that the device lacks."""
        ...

    def channel_block(self) -> int:
        """The number of channels the runtime keeps together in its own layout, 0 for none."""
        ...

    def optimize(
        self, proto: onnx.ModelProto, file: Path, *, threads: int, tokens_as_images: bool = True
    ) -> onnx.ModelProto:
        """Return the graph the runtime really runs here; `file` is where it writes it.

        Without `tokens_as_images` matrix products stay what they are: they may be quantised.

        Raises:
            RunError: the runtime cannot load the model.
        """
        ...

    def open_session(
        self, model: bytes | Path, options: ort.SessionOptions
    ) -> ort.InferenceSession:
        """Load a model.

        Raises:
            RunError: the runtime refuses it.
        """
        ...

    def provider(self) -> str:
        """Return the execution provider of this device."""
        ...

    def with_operators(self, libraries: Sequence[Path]) -> Device:
        """Return this device, whose sessions know the operators of the given libraries too."""
        ...

    def check_kernel(self, source: KernelSource) -> None:
        """Look at the schedule of a kernel without compiling it.

        Raises:
            ScheduleError: it does not fit the kernel.
        """
        ...

    def compile_kernel(self, source: KernelSource, target: Target, directory: Path) -> Path:
        """Compile one kernel to an object file in `directory`.

        Raises:
            ScheduleError: the schedule does not fit the kernel.
            BuildError: the compiler fails.
        """
        ...

    def build_library(
        self,
        sources: Sequence[KernelSource],
        objects: Sequence[Path],
        *,
        target: Target,
        toolchain: Toolchain,
        file: Path,
    ) -> Path:
        """Link compiled kernels into a library of custom operators of the runtime.

        Raises:
            BuildError: the linker fails.
        """
        ...

    def timer(
        self,
        run: Callable[[], object],
        *,
        repeats: int,
        before: Callable[[], object] | None = None,
    ) -> Callable[[], float]:
        """Return a function that takes one sample: `repeats` runs in a row, until all are done.

        What it returns is the time of one run in microseconds; what is called before each of
        them does not count.
        """
        ...

    def usage(self) -> CpuUse:
        """Return counters of what this process has got of the device's host so far."""
        ...

    def watch_memory(self, files: Path) -> Callable[[], MemoryUse | None]:
        """Return a function that says what memory this process takes more than now.

        Files of the folder `files`, which hold weights, count as far as they are in memory. It
        returns None where the system does not say.
        """
        ...

    def is_hoarding(self, process: int) -> bool:
        """True if a process holds so much of the host's memory that hardly any is left."""
        ...

    def offer_this_process(self) -> None:
        """Let the host end this process first, where its memory runs out."""
        ...
