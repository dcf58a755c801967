"""The CPU as a device: ONNX Runtime's own kernels are what Halide's are measured against."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.device.cpu.cores import core_siblings, numa_nodes, pinned_to_node, split_cores
from aoe.device.cpu.host import describe_host, missing_features, usable_cores
from aoe.device.cpu.memory import MemoryGrowth, is_hoarding, offer_this_process
from aoe.device.cpu.usage import RunQueueWait, involuntary_switches, read_usage
from aoe.device.protocol import CheckUp, CoreSplit
from aoe.measurement import CallTime, CpuUse
from aoe.measurement.memory import MemoryUse
from aoe.target import Target

if TYPE_CHECKING:
    import onnx
    import onnxruntime as ort

    from aoe.device.compiler import KernelSource
    from aoe.device.toolchain import Toolchain

_ARCHITECTURES = ("x86-64", "aarch64")
_PROVIDER = "CPUExecutionProvider"
_WAIT_SHARE, _WAIT_S = 0.02, 20e-6
"""Threads of a sample may wait on a run queue for so long together: the longer of a share of the
sample and a time. Beside neighbours a sample with two threads waits 0 us or more than 200 us, with
4 to 18 % of the samples between; 10 % of the sample as a limit marks the same pairs."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """This machine's CPU; see `Device` for what each method is for."""

    operators: tuple[Path, ...] = ()  # Libraries of operators ONNX Runtime does not have

    def describe(self, core_num: int | None = None) -> Target:
        """Describe this machine's CPU."""
        return describe_host(core_num)

    def serves(self, soc_version: str) -> bool:
        """True if a target is a CPU."""
        return soc_version.startswith(_ARCHITECTURES)

    def missing_features(self, needed: tuple[str, ...]) -> tuple[str, ...]:
        """Return the CPU features among `needed` that this CPU lacks."""
        return missing_features(needed)

    def cores(self, *, all_of_them: bool = False) -> tuple[str, ...]:
        """Return the names of CPU cores."""
        numbers = range(os.cpu_count() or 1) if all_of_them else sorted(os.sched_getaffinity(0))
        return tuple(f"cpu{number}" for number in numbers)

    def check_up(self) -> tuple[CheckUp, ...]:
        """Return the checks of cores, clock, load and memory."""
        from aoe.device.cpu.health import check_cpu

        return check_cpu()

    def numbers(self) -> tuple[int, ...]:
        """Return the NUMA nodes of this machine."""
        return tuple(sorted(numa_nodes()))

    def pinned(self, number: int, where: str) -> AbstractContextManager[None]:
        """Keep a run on one NUMA node."""
        return pinned_to_node(number, where=where)

    def apart(self, threads: int) -> CoreSplit:
        """Return cores that are measured on, and cores that share no physical one with them."""
        usable = os.sched_getaffinity(0)
        if usable_cores() < len(usable):  # a quota is of time: none of it is left over
            return CoreSplit(measured=frozenset(usable))
        return split_cores(threads, core_siblings(usable))

    def keep_to(self, cores: frozenset[int]) -> None:
        """Set the affinity of this process."""
        os.sched_setaffinity(0, cores)

    def channel_block(self) -> int:
        """Return the block of ONNX Runtime's NCHWc layout."""
        from aoe.ort.blocking import nchwc_block

        return nchwc_block(self.open_session)

    def optimize(
        self, proto: onnx.ModelProto, file: Path, *, threads: int, tokens_as_images: bool = True
    ) -> onnx.ModelProto:
        """Return the graph ONNX Runtime runs on this CPU.

        Images of tokens gain by the blocked layout, which not every CPU has.
        """
        from aoe.ort.offline_optimization import optimize_offline

        as_images = tokens_as_images and self.channel_block() > 0
        return optimize_offline(
            proto, file, self.open_session, threads=threads, tokens_as_images=as_images
        )

    def open_session(
        self, model: bytes | Path, options: ort.SessionOptions
    ) -> ort.InferenceSession:
        """Load a model into ONNX Runtime."""
        from aoe.ort.custom_operators import register_operators
        from aoe.ort.sessions import create_session

        register_operators(options, self.operators)
        return create_session(model, options, _PROVIDER)

    def provider(self) -> str:
        """Return the name of ONNX Runtime's CPU provider."""
        return _PROVIDER

    def with_operators(self, libraries: Sequence[Path]) -> Cpu:
        """Return the CPU, whose sessions know the operators of the given libraries too."""
        return replace(self, operators=tuple(libraries))

    def check_kernel(self, source: KernelSource) -> None:
        """Apply the steps to the pipeline."""
        from aoe.device.compiler import check_kernel

        check_kernel(source)

    def compile_kernel(self, source: KernelSource, target: Target, directory: Path) -> Path:
        """Compile one kernel with Halide."""
        from aoe.device.compiler import compile_kernel

        return compile_kernel(source, target, directory)

    def build_library(
        self,
        sources: Sequence[KernelSource],
        objects: Sequence[Path],
        *,
        target: Target,
        toolchain: Toolchain,
        file: Path,
    ) -> Path:
        """Link kernels and the glue to ONNX Runtime with the C compiler."""
        from aoe.device.compiler import build_library

        return build_library(sources, objects, target=target, toolchain=toolchain, file=file)

    def timer(
        self,
        run: Callable[[], object],
        *,
        repeats: int,
        before: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
        thread_clock: Callable[[], float] = time.thread_time,
        switches: Callable[[], int] = involuntary_switches,
        waited: Callable[[], float] | None = None,
    ) -> Callable[[], CallTime]:
        """Return a function that takes one sample; a run is done when it returns."""
        waited_s = waited or RunQueueWait()

        def sample() -> CallTime:
            return call_time([timed(repeats)])

        def prepared_sample() -> CallTime:
            parts = []
            for _ in range(repeats):
                prepare()
                parts.append(timed(1))
            return call_time(parts)

        def timed(calls: int) -> tuple[float, float, float, int, float]:
            # counters of the kernel are read outside of wall time, which decides wherever it can
            waited_start, switches_start, own_start = waited_s(), switches(), thread_clock()
            cpu_start, start = cpu_clock(), clock()
            for _ in range(calls):
                run()
            taken, cpu_taken = clock() - start, cpu_clock() - cpu_start
            own = thread_clock() - own_start
            return taken, cpu_taken, own, switches() - switches_start, waited_s() - waited_start

        def call_time(parts: Sequence[tuple[float, float, float, int, float]]) -> CallTime:
            taken, cpu_taken, own, lost, waiting_s = map(sum, zip(*parts, strict=True))
            wall_us, cpu_us = taken * 1e6 / repeats, cpu_taken * 1e6 / repeats
            waits = waiting_s > max(_WAIT_SHARE * taken, _WAIT_S)  # False for NaN
            pool_share = max(0.0, 1 - own / cpu_taken) if cpu_taken > 0 else math.nan
            return CallTime(wall_us, cpu_us, is_disturbed=lost > 0 or waits, pool_share=pool_share)

        if before is None:
            return sample
        prepare = before
        return prepared_sample

    def usage(self) -> CpuUse:
        """Return the CPU use of this process so far."""
        return read_usage()

    def watch_memory(self, files: Path) -> Callable[[], MemoryUse | None]:
        """Return a function that says what this process takes of the host's memory."""
        return MemoryGrowth(files).so_far

    def is_hoarding(self, process: int) -> bool:
        """True if a process holds most of a memory that is nearly used up."""
        return is_hoarding(process)

    def offer_this_process(self) -> None:
        """Let the kernel end this process before any other, where memory runs out."""
        offer_this_process()
