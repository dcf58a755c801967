"""The hardware code is made for, as a value: nothing here looks at the machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aoe.workload import Precision
from aoebank import plural

TILES_SUFFIX = "_tiles"
"""Ends the name of an algorithm that multiplies bfloat16 in the CPU's matrix tiles (AMX)."""

HOST_PREFIX = "host_"
"""Begins the name of an algorithm whose operators ONNX Runtime has; nothing is compiled for it."""
HOST_INT8 = f"{HOST_PREFIX}int8"
"""ONNX Runtime's products of 8 bits, which are right only where the CPU sums them in 32 bits."""


AMX = "amx"
"""Part of the name of an algorithm that multiplies levels of 8 bits in matrix tiles (AMX)."""
VNNI = "vnni"
"""Part of the name of an algorithm that sums four products of 8 bits by one instruction."""
WIDENED = "widened"
"""Part of the name of the algorithm for the same integers on CPUs without that instruction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionSet:
    """Instructions that only some kernels use."""

    features: tuple[str, ...] = ()  # Halide target features which make the compiler use them
    # CPU features such a kernel needs beyond those every kernel needs.
    cpu_features: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A processor and the number of its cores kernels are tuned for."""

    soc_version: str  # Stable readable name without `_`, for example `x86-64-zen5`
    core_num: int  # Threads of the tuned model
    architecture: str  # Halide's name of the instruction set, for example `x86-64`
    features: tuple[str, ...]  # Halide target features of every kernel, in Halide's order
    cpu_features: tuple[str, ...]  # CPU features a machine needs to run any kernel
    vector_lanes: int  # float32 elements of one vector register
    l1_bytes: int  # Data cache of one core
    l2_bytes: int  # Second-level cache of one core
    cpu_model: str  # Marketing name, for people
    caveat: str = ""  # Why `soc_version` is only the best guess, empty if it is certain
    # Vectors of bfloat16 pairs multiplied and summed in float32; None without.
    bf16_dot: InstructionSet | None = None
    bf16_tiles: InstructionSet | None = None  # The same for whole matrix tiles; None without
    # Vectors of four products of 8 bits, summed in 32 (AVX512-VNNI); None without.
    int8_dot: InstructionSet | None = None
    int8_tiles: InstructionSet | None = None  # The same for whole matrix tiles; None without
    # The same as ONNX Runtime's own operators use it (AVX512-VNNI or AVX-VNNI, whatever the CPU has
    # besides); None without.
    int8_sums: InstructionSet | None = None

    @property
    def halide_name(self) -> str:
        """Target string for Halide, without the features of a build mode."""
        return "-".join((self.architecture, "linux", *self.features))

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Precisions products may have on this processor, the highest first.

        Integers everywhere: where kernels have no instructions for them, ONNX Runtime's own
        operators do without.
        """
        rounded = (Precision.BFLOAT16,) if self.bf16_dot or self.bf16_tiles else ()
        return (Precision.FLOAT32, *rounded, Precision.INT8, Precision.INT4)

    def for_kernel(self, precision: Precision, algorithm: str = "") -> Target:
        """Return the target a kernel is compiled for, with what it needs beyond the others.

        Args:
            precision: Of its workload.
            algorithm: Of its schedule; a name that ends in `_tiles` asks for matrix tiles, `vnni`
                in a name for sums of products of 8 bits, `amx` for those in matrix tiles.
        """
        if AMX in algorithm:
            used = [self.int8_dot, self.int8_tiles]
        elif VNNI in algorithm:
            used = [self.int8_dot]
        elif not precision.is_lower:
            return self
        elif algorithm.startswith(HOST_PREFIX):
            used = [self.int8_sums if algorithm == HOST_INT8 else None]
        else:
            dot = self.bf16_dot if precision is Precision.BFLOAT16 else self.int8_dot
            used = [dot, self.bf16_tiles if algorithm.endswith(TILES_SUFFIX) else None]
        found = [known for known in used if known is not None]
        return replace(
            self,
            features=_joined(self.features, *(known.features for known in found)),
            cpu_features=_joined(self.cpu_features, *(known.cpu_features for known in found)),
        )

    def misfit(self, algorithm: str) -> str:
        """Return why an algorithm of a bank is one for other processors; empty if it is not.

        A target's name says nothing of the features a hypervisor masks, and either of two
        algorithms for the same integers would run on both kinds of processors, slowly.
        """
        in_tiles = algorithm.endswith(TILES_SUFFIX) and self.bf16_tiles is None
        if in_tiles or (AMX in algorithm and self.int8_tiles is None):
            return f"{algorithm} is for CPUs with AMX, where the system grants its tiles"
        if VNNI in algorithm and self.int8_dot is None:
            return f"{algorithm} is for CPUs with AVX-512 VNNI"
        if WIDENED in algorithm and self.int8_dot is not None:
            return f"{algorithm} is for CPUs without VNNI"
        return ""


def _joined(*parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in parts for name in part))


def unmet_cores(asked: int | None, used: int) -> str:
    """Return a warning on cores that were asked for and are missing, or the empty string.

    More threads than cores spin for nothing and wait for each other.
    """
    if asked is None or asked <= used:
        return ""
    return f"{plural(used, 'thread')} instead of {asked}: there are no more usable cores"
