"""Compiled ahead of time, a kernel needs nothing but what the glue and libc have."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import halide as hl
import pytest
from support.contracts.kernels import (
    between_reorders,
    block_size,
    blocked,
    kernel_target,
    operation,
    plain,
)

from aoe.device.registry import default_device
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.apply import apply_schedule, set_extents
from aoe.kernels.registry import get_family
from aoe.schedule import Choice, Configuration
from aoe.workload import NCHWC_DOMAIN, Layout, TensorSpec, Workload

PROVIDED = {"halide_do_par_for", "halide_malloc", "halide_free", "memset", "memcpy"}
FEATURES = ("no_runtime", "no_asserts", "no_bounds_query", "user_context")
BIG = plain(1, 24, 56, 56)


def cases() -> Mapping[str, Workload]:
    chain = ("Mish", "Erf", "Tanh", "Log", "Softplus", "Sin", "Cos", "Round", "Floor")
    operations = [operation("Pow", "x0 x1", "t0")]
    operations += [operation(name, f"t{i}", f"t{i + 1}") for i, name in enumerate(chain)]
    found = {
        "elementwise": Workload(
            op_type="elementwise", inputs=(BIG, BIG), operations=tuple(operations), output=BIG
        ),
        "lrn": Workload(
            op_type="lrn",
            inputs=(BIG,),
            operations=(operation("LRN", "x0", size=5, beta=0.6),),
            output=BIG,
        ),
        "softmax": Workload(
            op_type="softmax",
            inputs=(BIG,),
            operations=(operation("LogSoftmax", "x0", axis=1),),
            output=BIG,
        ),
        "batch_normalization": Workload(
            op_type="batch_normalization",
            inputs=(BIG, *(plain(24),) * 4),
            operations=(operation("BatchNormalization", "x0 x1 x2 x3 x4"),),
            output=BIG,
        ),
    }
    if block_size():
        data = blocked(1, 4 * block_size(), 27, 27)
        lrn = operation("LRN", "r0", "t0", size=5)
        found["lrn, blocked"] = between_reorders("lrn", (data,), (lrn,))
    return found


@pytest.mark.parametrize("name", cases())
def test_object_needs_only_what_the_glue_provides(name: str, tmp_path: Path) -> None:
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("no nm on this machine")
    workload = cases()[name]
    family, target = get_family(workload.op_type), kernel_target()
    guess = Configuration(family.space(workload, target).first_guesses[0])
    pipeline = family.pipeline(workload)
    apply_schedule(pipeline, family.schedule(workload, guess, target))
    set_extents(pipeline)
    file = tmp_path / "kernel.o"
    built_for = hl.Target("-".join((default_device().describe().halide_name, *FEATURES)))
    pipeline.output.compile_to_object(str(file), list(pipeline.arguments), "kernel", built_for)
    listed = subprocess.run([nm, "-u", str(file)], capture_output=True, text=True, check=True)
    needed = {line.split()[-1] for line in listed.stdout.splitlines() if line.strip()}
    assert needed <= PROVIDED


ROWS, DEPTH, COLUMNS = 126, 96, 192
GELU = (
    operation("Erf", "t0", "t1"),
    operation("Mul", "t0 t1", "t2"),
    operation("Add", "t0 t2", "t3"),
)
PRODUCTS = {
    "chain of GELU": Workload(
        op_type="matmul",
        inputs=(plain(ROWS, DEPTH), plain(DEPTH, COLUMNS, constant=True)),
        operations=(operation("MatMul", "x0 x1", "t0"), *GELU),
        output=plain(ROWS, COLUMNS),
    ),
    "no chain": Workload(
        op_type="matmul",
        inputs=(plain(ROWS, DEPTH), plain(DEPTH, COLUMNS, constant=True)),
        operations=(operation("MatMul", "x0 x1", "t0"),),
        output=plain(ROWS, COLUMNS),
    ),
    "attention": Workload(
        op_type="attention",
        inputs=(plain(2, ROWS, 64), plain(2, 64, ROWS), plain(2, ROWS, 64)),
        operations=(
            operation("MatMul", "x0 x1", "t0"),
            operation("Softmax", "t0", "t1", axis=-1),
            operation("MatMul", "t1 x2", "t2"),
        ),
        output=plain(2, ROWS, 64),
    ),
}


def loops_of_products(assembly: str, least: int) -> list[str]:
    """Return the bodies of innermost loops with `least` multiply-adds of vectors or more."""
    parts = re.split(r"^(\.L\w+):", assembly, flags=re.MULTILINE)
    bodies = []
    for label, code in zip(parts[1::2], parts[2::2], strict=True):
        back = re.search(rf"\sj\w+\s+{re.escape(label)}$", code, flags=re.MULTILINE)
        if back and len(re.findall(r"\tvfmadd\w+", code[: back.start()])) >= least:
            bodies.append(code[: back.start()])
    return bodies


def _assembly(
    workload: Workload,
    guess: Mapping[str, Choice],
    target: KernelTarget,
    processor: str,
    folder: Path,
) -> str:
    """Return what Halide compiles a first guess to for a processor."""
    family = get_family(workload.op_type)
    schedule = family.schedule(workload, Configuration(guess), target)
    pipeline = family.pipeline(workload, schedule.algorithm)
    apply_schedule(pipeline, schedule)
    set_extents(pipeline)
    file = folder / "kernel.s"
    outputs = {hl.OutputFileType.assembly: str(file)}
    built_for = hl.Target("-".join((processor, *FEATURES)))
    pipeline.output.compile_to(outputs, list(pipeline.arguments), "kernel", built_for)
    return file.read_text()


@pytest.mark.parametrize("name", PRODUCTS)
def test_sums_of_products_stay_in_registers(name: str, tmp_path: Path) -> None:
    """The compiler gives registers to constants of a chain where it takes that for the hot loop."""
    workload = PRODUCTS[name]
    family, target = get_family(workload.op_type), KernelTarget(vector_lanes=16, threads=1)
    space = family.space(workload, target)
    for guess in space.first_guesses:
        assembly = _assembly(workload, guess, target, "x86-64-linux-avx512_skylake", tmp_path)
        loops = loops_of_products(assembly, least=12)
        assert loops
        for loop in loops:
            stores = re.findall(r"vmov\w+\t%zmm\d+, .*\(%r\w+.*", loop)
            assert len(stores) <= 2, f"{guess}: {loop}"


def test_gelu_that_is_spelled_out_takes_one_division_for_a_vector(tmp_path: Path) -> None:
    image = plain(64, 1024)
    workload = Workload(
        op_type="elementwise",
        inputs=(image,),
        scalars=(2**0.5, 1.0, 0.5),
        operations=(
            operation("Div", "x0 s0", "t0"),
            operation("Erf", "t0", "t1"),
            operation("Add", "t1 s1", "t2"),
            operation("Mul", "x0 t2", "t3"),
            operation("Mul", "t3 s2", "t4"),
        ),
        output=image,
    )
    target = KernelTarget(vector_lanes=8, threads=1)
    guess = get_family("elementwise").space(workload, target).first_guesses[0]
    assembly = _assembly(workload, guess, target, "x86-64-linux-avx2-fma", tmp_path)
    divisions = re.findall(r"\tvdivps\t.*%ymm", assembly)
    assert len(divisions) == int(guess["vector"]) // 8 * int(guess["unroll"])


def _avx2_convolution(channels: int, *, is_filtered: bool) -> Workload:
    """Return a pointwise convolution of 14 x 14 pixels in blocks of 8 channels.

    Args:
        channels: Of the result.
        is_filtered: True for a depthwise convolution behind it, False for a chain.
    """
    image = TensorSpec(shape=(1, 64, 14, 14), layout=Layout.BLOCKED, block=8)
    product = operation("Conv", "x0 x1", "t0", domain=NCHWC_DOMAIN, kernel_shape=(1, 1), group=1)
    inputs, behind = (image, plain(channels, 64, 1, 1, constant=True)), operation("Neg", "t0", "t1")
    if is_filtered:
        inputs = (*inputs, plain(channels, 1, 3, 3, constant=True))
        given = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "group": channels}
        behind = operation("Conv", "t0 x2", "t1", domain=NCHWC_DOMAIN, **given)
    return Workload(
        op_type="expanded_convolution" if is_filtered else "convolution",
        inputs=inputs,
        operations=(product, behind),
        output=replace(image, shape=(1, channels, 14, 14)),
    )


@pytest.mark.parametrize("is_filtered", [False, True])
@pytest.mark.parametrize("channels", [64, 24, 40])
def test_sums_of_a_convolution_stay_in_the_16_registers_of_avx2(
    channels: int, is_filtered: bool, tmp_path: Path
) -> None:
    """LLVM loads one broadcast ahead, so a tile that takes all registers is put down to memory."""
    workload = _avx2_convolution(channels, is_filtered=is_filtered)
    family, target = get_family(workload.op_type), KernelTarget(vector_lanes=8, threads=1)
    for guess in family.space(workload, target).first_guesses:
        assembly = _assembly(workload, guess, target, "x86-64-linux-avx2-fma", tmp_path)
        loops = loops_of_products(assembly, least=64)
        loops = [loop for loop in loops if loop.count("vbroadcastss") >= 8]  # not the filter's
        assert loops
        assert not [loop for loop in loops if re.search(r"vmovups\t%ymm\d+, .*\(%r\w+.*", loop)]
