"""The hardware code is made for, as a value: nothing here looks at the machine."""

from __future__ import annotations

from dataclasses import dataclass

_BUILTIN_NAMES = {"sse4_1": "sse4.1"}  # spelling of GCC's and Clang's __builtin_cpu_supports


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A processor and the number of its cores kernels are tuned for.

    Attributes:
        soc_version: Stable readable name without `_`, for example `x86-64-zen5`.
        core_num: Threads of the tuned model.
        architecture: Halide's name of the instruction set, for example `x86-64`.
        features: Halide target features, in Halide's order.
        cpu_features: CPU features a machine needs to run the kernels.
        vector_lanes: float32 elements of one vector register.
        l1_bytes: Data cache of one core.
        l2_bytes: Second-level cache of one core.
        cpu_model: Marketing name, for people.
        doubt: Why `soc_version` is only the best guess, empty if it is certain.
    """

    soc_version: str
    core_num: int
    architecture: str
    features: tuple[str, ...]
    cpu_features: tuple[str, ...]
    vector_lanes: int
    l1_bytes: int
    l2_bytes: int
    cpu_model: str
    doubt: str = ""

    @property
    def halide_name(self) -> str:
        """Target string for Halide, without the features of a build mode."""
        return "-".join((self.architecture, "linux", *self.features))

    @property
    def builtin_names(self) -> tuple[str, ...]:
        """CPU features as the C compiler's `__builtin_cpu_supports` spells them."""
        return tuple(_BUILTIN_NAMES.get(name, name) for name in self.cpu_features)
