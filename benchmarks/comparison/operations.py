"""Multiply-adds of a model, and how many this machine makes in a second at most."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

Shape = tuple[int, ...]

_SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/wait.h>
typedef float vec __attribute__((vector_size(WIDTH * 4)));
#ifdef __aarch64__
#define IN_REGISTER "+w"
#else
#define IN_REGISTER "+v"
#endif
#define ALL(STEP) STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) \\
                  STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)
#define BEGIN(i) vec a##i = y;
#define STEP(i) a##i = a##i * x + y; __asm__ volatile("" : IN_REGISTER(a##i));
static double now(void) {  /* of the processor, so that whoever is running too takes nothing away */
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
static double rate(double seconds) {  /* multiply-adds a second of one core, 12 chains */
  vec x = {0}, y = {0};
  for (int i = 0; i < WIDTH; ++i) { x[i] = 0.999f; y[i] = 0.001f; }
  ALL(BEGIN)
  double start = now(), took;
  long rounds = 0;
  do {
    for (int r = 0; r < 10000; ++r) { ALL(STEP) }
    rounds += 10000;
    took = now() - start;
  } while (took < seconds);
  return (double)rounds * 12 * WIDTH / took;
}
static double best_rate(void) {
  double best = 0;
  for (int k = 0; k < 5; ++k) { double one = rate(0.04); if (one > best) best = one; }
  return best;
}
int main(int count, char **words) {
  int threads = count > 1 ? atoi(words[1]) : 1, ends[2];
  double sum = 0, one;
  if (pipe(ends)) return 1;
  for (int i = 0; i < threads; ++i)
    if (!fork()) { one = best_rate(); return write(ends[1], &one, sizeof one) != sizeof one; }
  for (int i = 0; i < threads; ++i) {
    if (read(ends[0], &one, sizeof one) != sizeof one) return 1;
    sum += one;
  }
  while (wait(0) > 0) {}
  printf("%.6g\\n", sum);
  return 0;
}
"""
_TIMEOUT_S = 60.0


class FmaRoof:
    """A little program of independent fused multiply-adds in registers, compiled for this CPU."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "fma_roof"
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise OSError("no C compiler: cc, gcc and clang are not on PATH")
        flags = Path("/proc/cpuinfo").read_text()
        width = 16 if "avx512f" in flags else 8 if "avx2" in flags else 4
        source = folder / "fma_roof.c"
        source.write_text(_SOURCE)
        subprocess.run(
            [
                *(compiler, "-O3", "-march=native", "-ffp-contract=fast"),
                *(f"-DWIDTH={width}", "-o", str(self._program), str(source)),
            ],
            check=True,
            capture_output=True,
            timeout=_TIMEOUT_S,
        )

    def measure(self, threads: int) -> float:
        """Return float32 multiply-adds a second, one process per core, best of five short runs."""
        done = subprocess.run(
            [self._program, str(threads)],
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
        return float(done.stdout)


def multiply_adds(model: onnx.ModelProto) -> int:
    """Return the multiply-adds of convolutions, matrix products and recurrent layers of one run.

    Args:
        model: With static shapes, after shape inference.

    Raises:
        ValueError: the shape of an operand is not known.
    """
    shapes = _shapes(model)
    total = 0
    for node in model.graph.node:
        count = _COUNTS.get(node.op_type)
        if count is not None:
            total += count(node, [*map(shapes.get, node.input)], shapes[node.output[0]])
    return total


def _conv(node: onnx.NodeProto, inputs: Sequence[Shape | None], output: Shape) -> int:
    return math.prod(output) * math.prod(_known(node, inputs, 1)[1:])


def _conv_transpose(node: onnx.NodeProto, inputs: Sequence[Shape | None], output: Shape) -> int:
    return math.prod(_known(node, inputs, 0)) * math.prod(_known(node, inputs, 1)[1:])


def _product(node: onnx.NodeProto, inputs: Sequence[Shape | None], output: Shape) -> int:
    left = _known(node, inputs, 0)
    is_flipped = any(a.name == "transA" and a.i for a in node.attribute)
    return math.prod(output) * (left[-2] if is_flipped else left[-1])


def _lstm(node: onnx.NodeProto, inputs: Sequence[Shape | None], output: Shape) -> int:
    length, batch = _known(node, inputs, 0)[:2]
    return (
        length * batch * (math.prod(_known(node, inputs, 1)) + math.prod(_known(node, inputs, 2)))
    )


_COUNTS = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _product,
    "LSTM": _lstm,
    "MatMul": _product,
}


def _known(node: onnx.NodeProto, inputs: Sequence[Shape | None], index: int) -> Shape:
    shape = inputs[index]
    if shape is None:
        raise ValueError(f"{node.op_type} {node.name}: input {index} has no static shape")
    return shape


def _shapes(model: onnx.ModelProto) -> Mapping[str, Shape]:
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        extents = value.type.tensor_type.shape.dim
        if all(extent.HasField("dim_value") for extent in extents):
            shapes[value.name] = tuple(extent.dim_value for extent in extents)
    return shapes
