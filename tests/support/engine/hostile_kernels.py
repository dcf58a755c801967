"""Candidates that harm the process they run in, written in C in the place of compiled ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aoe.device.compiler import KernelSource
from aoe.device.toolchain import Toolchain, halide_include
from aoe.execute.messages import CompiledKernels
from aoe.schedule import Schedule
from aoe.workload import Workload

_SOURCE = """
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "HalideRuntime.h"

static float *data(void **arguments, int number) {
  return (float *)((halide_buffer_t *)arguments[number + 1])->host;
}

int aoe_kernel_%s_argv(void **arguments) {
  float *x = data(arguments, 0), *y = data(arguments, 1);
  const int count = %d;
  int first = 0;
  %s
  for (int i = first; i < count; i++) y[i] = expf(x[i]);
  return 0;
}
"""


@dataclass(frozen=True, slots=True)
class HostileKernels:
    """Compiles kernels that do something else before they compute Exp.

    Stands in for `KernelCompilers`.
    """

    folder: Path  # Where the object files go
    toolchain: Toolchain  # Compiles them
    workload: Workload  # An Exp of any shape

    def add(self, schedule: Schedule, harm: str = "") -> None:
        """Compile a candidate that does `harm`, C statements, at the beginning of each run."""
        name = KernelSource.of(self.workload, schedule).name
        file = self.folder / f"{name}.c"
        file.write_text(_SOURCE % (name, self.workload.output.size, harm))
        flags = ["-O0", "-fPIC", "-w", "-c", f"-I{halide_include()}"]
        self.toolchain.run(
            [*flags, "-o", str(file.with_suffix(".o")), str(file)], what="compiling a kernel"
        )

    def compiled(self, sources: Sequence[KernelSource]) -> CompiledKernels:
        """Return where the candidates are."""
        return CompiledKernels(
            directory=self.folder, errors={source.name: "" for source in sources}
        )
