"""Runs kernels with the address sanitizer in them and in the glue, in a process of its own.

    python -m support.engine.sanitized [--cases N] [--too-far] [MODULE ...]

Each module has subclasses of `KernelFamilyTests`; of each, the first N cases are compiled with the
schedule that is tried first, linked with the glue and run twice on two threads by ONNX Runtime,
whose tensors then come from `malloc` one by one. Prints a line per kernel. A read or a write
outside a tensor ends the process, and the sanitizer says where. `sanitizer_environment` has the
variables the process needs: the sanitizer has to be loaded first, as ONNX Runtime is not built with
it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import halide as hl

from aoe.device.compiler import KernelSource, build_library, compile_kernel
from aoe.device.registry import default_device
from aoe.device.toolchain import Toolchain, find_toolchain
from aoe.folders.scratch import ScratchFolder
from aoe.graph.workload_model import candidate_model, random_inputs, workload_model
from aoe.kernels import registry
from aoe.kernels.elementwise import Elementwise
from aoe.kernels.family import KernelTarget, Pipeline
from aoe.ort.sessions import session_options
from aoe.target import Target
from aoe.workload import Workload
from support.contracts.kernels import SEED, THREADS, KernelFamilyTests
from support.engine.families import chain_workload

_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g")
_RUNS = 2


@dataclass(frozen=True, slots=True)
class TooFar(Elementwise):
    """Reads the element behind the one it should."""

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the input, moved by one along its innermost dimension."""
        found = Elementwise.pipeline(self, workload, algorithm)
        place = found.output.args()
        moved = hl.Func("y")
        moved[place] = found.arguments[0][[place[0] + 1, *place[1:]]]
        return replace(found, output=moved, stages={"y": moved})


def sanitizer_environment(env: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the variables of a process for sanitized kernels; None without gcc's sanitizers."""
    compiler = find_toolchain(env).command
    libraries = [_library(compiler, name) for name in ("libasan.so", "libstdc++.so.6")]
    if any(library is None for library in libraries):
        return None
    return {
        **env,
        "CC": " ".join((*compiler, *_SANITIZERS)),
        "LD_PRELOAD": " ".join(map(str, libraries)),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps what it has until the end
    }


def main() -> int:
    """Run the kernels that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=1)
    parser.add_argument("--too-far", action="store_true")
    parser.add_argument("modules", nargs="*")
    arguments = parser.parse_args()
    target = default_device().describe(THREADS)
    target = replace(target, features=(*target.features, "asan"))
    toolchain = find_toolchain(os.environ)
    workloads = list(_workloads(arguments.modules, arguments.cases))
    if arguments.too_far:
        registry.FAMILIES["elementwise"] = TooFar()  # type: ignore[index]
        workloads = [("too far", chain_workload())]
    for label, workload in workloads:
        _run(workload, target, toolchain)
        print(label, flush=True)
    return 0


def _workloads(modules: Sequence[str], cases: int) -> Iterator[tuple[str, Workload]]:
    for module in modules:
        for name, suite in vars(import_module(module)).items():
            if not isinstance(suite, type) or not issubclass(suite, KernelFamilyTests):
                continue
            if suite is KernelFamilyTests or suite.family_name not in registry.FAMILIES:
                continue  # the contract itself, and families only a test has
            for label, workload in list(suite.all_cases().items())[:cases]:
                yield f"{name}: {label}", workload


def _run(workload: Workload, target: Target, toolchain: Toolchain) -> None:
    """Build a kernel with its first schedule and compute it."""
    device, facts = default_device(), KernelTarget.of(target)
    family = registry.get_family(workload.op_type)
    schedule = family.schedule(workload, family.space(workload, facts).first_guesses[0], facts)
    source = KernelSource.of(workload, schedule)
    with ScratchFolder("sanitized") as folder:
        library = build_library(
            [source],
            [compile_kernel(source, target, folder)],
            target=target,
            toolchain=toolchain,
            file=folder / "kernels.so",
        )
        model = candidate_model(workload_model(workload, seed=SEED), source.name, workload)
        options = session_options(threads=THREADS, optimize=False, library=library)
        options.enable_cpu_mem_arena = False
        session = device.open_session(model.SerializeToString(), options)
        for _ in range(_RUNS):
            session.run(None, dict(random_inputs(workload, SEED)))


def _library(compiler: Sequence[str], name: str) -> Path | None:
    asked = [*compiler, f"-print-file-name={name}"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    file = Path(done.stdout.strip())
    return file if file.is_absolute() and file.exists() else None


if __name__ == "__main__":
    sys.exit(main())
