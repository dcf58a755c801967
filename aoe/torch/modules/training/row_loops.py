"""A region of a training graph as C: one loop over rows, which reads and writes memory once.

All tensors of a region are mapped to one iteration space: outer dimensions, and an inner one whose
elements lie side by side or are broadcast. Sums and maxima of a row are scalars of the row; sums
over rows are added up beside the loop. What needs such a sum is computed in a loop behind it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from aoe.errors import first_line
from aoe.torch.modules.training.c_expressions import EXPRESSIONS, constant
from aoe.torch.modules.training.regions import TABLE_GRADIENT, Laid, RegionForm, name_of
from aoe.torch.modules.training.row_values import (
    Refused,
    Tracer,
    Value,
    dense_strides,
    is_dense,
)

_LARGEST_ROWS_BYTES = 1 << 19
"""Bytes of rows, which lie on the stack of the calling thread."""
_BLOCK = 32
"""Rows whose sum is added to a total: the rounding error grows with the root of their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSource:
    """The C function of a region."""

    text: str  # With `@` for its name
    arguments: tuple[int, ...]  # Numbers of the arguments whose memory it reads, in order
    adds: bool = False  # True if results are zeros before the call


def loop_source(module: torch.fx.GraphModule, form: RegionForm) -> LoopSource | str:
    """Return the loop of a region in one of its forms, or why there is none."""
    try:
        calls = [node for node in module.graph.nodes if node.op == "call_function"]
        if len(calls) == 1 and name_of(calls[0]) == TABLE_GRADIENT:
            return _table_gradient(calls[0], form)
        results = Tracer(module, form).results()
        return _Writer(results, form).source()
    except Refused as error:
        return str(error)
    except Exception as error:  # a call of an operator nobody foresaw: the other regions go on
        return f"no loop: {first_line(error)}"


_ADDED_ROWS = """void @(const float *restrict a0, const int64_t *restrict a1, float *restrict r0) {{
  for (long i = 0; i < {count}; i++) {{
    if (a1[i] == {ignored})
      continue;
    const float *restrict row = a0 + i * {width};
    float *restrict sum = r0 + a1[i] * {width};
    for (long c = 0; c < {width}; c++)
      sum[c] += row[c];
  }}
}}
"""


def _table_gradient(node: torch.fx.Node, form: RegionForm) -> LoopSource:
    """Return the loop of an embedding's gradient: rows are added in order, as ATen adds them.

    Its result is zeros before: most rows of a large table are never touched.
    """
    *_, ignored, is_by_frequency = node.args
    rows, places = form.tensors
    (made,) = form.results
    if is_by_frequency or not all(is_dense(one.shape, one.strides) for one in (rows, places, made)):
        raise Refused("embedding_dense_backward: by frequency, or tensors with gaps")
    text = _ADDED_ROWS.format(count=places.size, ignored=ignored, width=made.shape[1])
    return LoopSource(text=text, arguments=(0, 1), adds=True)


@dataclass(slots=True)
class _Loop:
    """What one loop over all rows has to compute."""

    results: list[tuple[int, Value]] = field(default_factory=list)  # Of the region, by number
    totals: list[Value] = field(default_factory=list)  # Sums over rows

    @property
    def ends(self) -> list[Value]:
        return [*(one for _, one in self.results), *(one.values[0] for one in self.totals)]


class _Writer:
    """Writes the C function of values."""

    def __init__(self, results: Sequence[Value | None], form: RegionForm) -> None:
        if any(not isinstance(one, Value) for one in results):
            raise Refused("a result that is none")
        self._results = [one for one in results if isinstance(one, Value)]
        self._form = form
        self._result_strides = [laid.strides for laid in form.results]
        for number, (one, laid) in enumerate(zip(self._results, form.results, strict=True)):
            if one.operator == "reshape" and is_dense(laid.shape, laid.strides):
                self._results[number] = one.values[0]
                self._result_strides[number] = dense_strides(one.values[0].shape)
        self._all = list(_in_order(self._results))
        self._space = self._iteration_space()
        self._dims = self._dimensions()
        self._names = {one: f"v{number}" for number, one in enumerate(self._all)}
        self._merge()
        self._phases = dict.fromkeys(self._all, 0)
        for one in self._all:
            self._phases[one] = max([self._phases[read] for read in one.values], default=0)
            self._phases[one] += self._is_total(one)

    def _iteration_space(self) -> tuple[int, ...]:
        """Return extents which those of the largest tensors are made of."""
        size = max(math.prod(one.shape) for one in self._all)
        cuts = {1, size}
        for one in self._all:
            if math.prod(one.shape) == size:
                product = 1
                for extent in reversed(one.shape):
                    cuts.add(product := product * extent)
        ordered = sorted(cuts)
        steps = list(itertools.pairwise(ordered))
        if any(large % small for small, large in steps):
            raise Refused("shapes that do not divide each other")
        return tuple(large // small for small, large in steps)[::-1]

    def _dimensions(self) -> dict[Value, tuple[tuple[int, ...], ...]]:
        """Return the dimensions of the space each axis of a value runs through; none for 1.

        Those of the largest values are known. Of others they follow from what reads them and what
        they read, which has the same axes.
        """
        size = math.prod(self._space)
        known: dict[tuple[Value, int], tuple[int, ...]] = {}
        equal: list[tuple[tuple[Value, int], tuple[Value, int]]] = []
        for one in self._all:
            known |= {(one, axis): () for axis, n in enumerate(one.shape) if n == 1}
            if math.prod(one.shape) == size:
                known |= {(one, axis): dims for axis, dims in enumerate(self._factors(one.shape))}
            for read in one.values:
                equal += _equal_axes(one, read, size)
        has_changed = True
        while has_changed:
            has_changed = False
            for pair in equal:
                for here, there in (pair, pair[::-1]):
                    if here in known and there not in known:
                        known[there], has_changed = known[here], True
        if any(known.get(here) != known.get(there) for here, there in equal):
            raise Refused("axes that do not agree")
        try:
            return {
                one: tuple(known[one, axis] for axis in range(len(one.shape))) for one in self._all
            }
        except KeyError as error:
            raise Refused("an axis of its own") from error

    def _factors(self, shape: Sequence[int]) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        at = len(self._space)
        for extent in reversed(shape):
            inner: tuple[int, ...] = ()
            while math.prod(self._space[dim] for dim in inner) < extent:
                at -= 1
                inner = (at, *inner)
            found.append(inner)
        return found[::-1]

    def _strides(self, value: Value, strides: Sequence[int]) -> list[int]:
        """Return the strides of a tensor in the space."""
        found = [0] * len(self._space)
        for dims, stride in zip(self._dims[value], strides, strict=True):
            for dim in reversed(dims):
                found[dim] = stride
                stride *= self._space[dim]
        return found

    def _merge(self) -> None:
        """Make one dimension of neighbours that every tensor runs through in one step."""
        self._arguments = {
            one: self._strides(one, one.strides)
            for one in self._all
            if one.operator in ("load", "position")
        }
        self._made = [
            self._strides(one, strides)
            for one, strides in zip(self._results, self._result_strides, strict=True)
        ]
        self._along = {one: {dim for dims in self._dims[one] for dim in dims} for one in self._all}
        self._reduced = {
            one: {dim for axis in one.axes for dim in self._dims[one.values[0]][axis]}
            for one in self._all
            if one.operator in ("sum", "max")
        }
        at = len(self._space) - 2
        while at >= 0:
            if self._may_merge(at):
                self._drop(at)
            at -= 1
        if not self._space:
            raise Refused("a single element")

    def _may_merge(self, at: int) -> bool:
        inner = self._space[at + 1]
        return all(
            strides[at] == strides[at + 1] * inner
            for strides in (*self._arguments.values(), *self._made)
        ) and all(
            (at in dims) == (at + 1 in dims)
            for dims in (*self._along.values(), *self._reduced.values())
        )

    def _drop(self, at: int) -> None:
        space = list(self._space)
        space[at : at + 2] = [space[at] * space[at + 1]]
        self._space = tuple(space)
        for strides in (*self._arguments.values(), *self._made):
            del strides[at]
        for dims in (*self._along.values(), *self._reduced.values()):
            moved = {dim - (dim > at) for dim in dims}
            dims.clear()
            dims |= moved

    @property
    def _inner(self) -> int:
        return len(self._space) - 1

    def _is_total(self, value: Value) -> bool:
        """True for a sum over rows, which is known behind the loop."""
        return bool(self._reduced.get(value, set()) - {self._inner})

    def source(self) -> LoopSource:
        """Return the function.

        Raises:
            Refused: it needs too much memory on the stack, or a maximum over rows.
        """
        loops: dict[int, _Loop] = {}
        for number, one in enumerate(self._results):
            loops.setdefault(self._phases[one], _Loop()).results.append((number, one))
        totals = [one for one in self._all if self._is_total(one)]
        for one in totals:
            is_row = self._is_vector(one.values[0])
            if one.operator == "max" or not (is_row or self._inner not in self._reduced[one]):
                raise Refused("a maximum over rows, or a sum of a scalar")
            loops.setdefault(self._phases[one] - 1, _Loop()).totals.append(one)
        lines = [*self._declarations(totals)]
        for phase in sorted(loops):
            lines += self._loop(phase, loops[phase])
        lines += self._frees(totals)
        read = sorted({one.argument for one in self._all if one.operator == "load"})
        pointers = [
            f"const {_C_TYPES[self._laid_of(number).dtype]} *restrict a{number}" for number in read
        ]
        pointers += [
            f"{_C_TYPES[laid.dtype]} *restrict r{number}"
            for number, laid in enumerate(self._form.results)
        ]
        body = "\n  ".join(lines)
        text = f"void @({', '.join(pointers)}) {{\n  {body}\n}}\n"
        return LoopSource(text=text, arguments=tuple(read))

    def _laid_of(self, number: int) -> Laid:
        laid = self._form.arguments[number]
        assert isinstance(laid, Laid)
        return laid

    # --- sums over rows ---

    def _declarations(self, totals: Sequence[Value]) -> Iterator[str]:
        """Yield the memory of sums over rows: doubles, or floats that blocks are added to."""
        for one in totals:
            name, count = self._names[one], self._count(one)
            kind = "float" if self._is_blocked(one) else "double"
            yield f"{kind} *restrict t_{name} = calloc({count}, sizeof *t_{name});"
            if self._is_blocked(one):
                yield f"float *restrict b_{name} = calloc({count}, sizeof *b_{name});"

    def _frees(self, totals: Sequence[Value]) -> Iterator[str]:
        for one in totals:
            yield f"free(t_{self._names[one]});"
            if self._is_blocked(one):
                yield f"free(b_{self._names[one]});"

    def _count(self, total: Value) -> int:
        return math.prod(self._space[dim] for dim in self._along[total])

    def _is_blocked(self, total: Value) -> bool:
        """True for a sum for each element of a row."""
        return self._along[total] == {self._inner}

    def _place(self, total: Value, *, is_inner: bool) -> str:
        """Return the index of a sum over rows."""
        terms, step = [], 1
        for dim in sorted(self._along[total], reverse=True):
            index = ("c" if is_inner else "0") if dim == self._inner else f"i{dim}"
            terms.append(f"{index} * {step}")
            step *= self._space[dim]
        return " + ".join(terms) or "0"

    # --- loops ---

    def _loop(self, phase: int, loop: _Loop) -> Iterator[str]:
        needed = list(self._needed(phase, loop.ends))
        runs = {dim for one in loop.ends for dim in self._along[one]}
        outer = [dim for dim in range(self._inner) if dim in runs]
        columns = self._space[self._inner] if any(map(self._is_vector, needed)) else 1
        fixed = [dim for dim in range(self._inner) if dim not in runs]
        yield "{"
        for dim in fixed:
            yield f"const long i{dim} = 0; (void)i{dim};"
        blocked = [one for one in loop.totals if self._is_blocked(one)]
        if blocked:
            yield "int rows = 0;"
        for dim in outer:
            yield f"for (long i{dim} = 0; i{dim} < {self._space[dim]}; i{dim}++)"
        yield "{"
        yield from self._row(phase, loop, needed, columns)
        if blocked:
            yield f"if (++rows == {_BLOCK}) {{ rows = 0;"
            yield from map(self._flush, blocked)
            yield "}"
        yield "}"
        yield from map(self._flush, blocked)
        yield "}"

    def _flush(self, total: Value) -> str:
        name, count = self._names[total], self._count(total)
        return (
            f"for (int c = 0; c < {count}; c++) {{ t_{name}[c] += b_{name}[c]; b_{name}[c] = 0; }}"
        )

    def _needed(self, phase: int, ends: Sequence[Value]) -> Iterator[Value]:
        """Yield what has to be computed in a loop, sums of loops before left out."""
        seen: set[Value] = set()

        def visit(one: Value) -> Iterator[Value]:
            if one in seen:
                return
            seen.add(one)
            if not self._is_total(one):
                for read in one.values:
                    yield from visit(read)
            yield one

        for end in ends:
            yield from visit(end)

    def _row(self, phase: int, loop: _Loop, needed: Sequence[Value], columns: int) -> Iterator[str]:
        stages = dict.fromkeys(needed, 0)
        for one in needed:
            if not self._is_total(one):
                stages[one] = max([stages[read] for read in one.values], default=0)
                stages[one] += one.operator in ("sum", "max")
        last = max(stages.values(), default=0)
        uses: dict[Value, int] = {}
        for one in needed:
            if self._is_total(one):
                continue
            for read in one.values:
                at = stages[one] - (one.operator in ("sum", "max"))
                uses[read] = max(uses.get(read, 0), at)
        kept = [
            one
            for one in needed
            if self._is_vector(one)
            and uses.get(one, 0) > stages[one]
            and one.operator not in ("load", "position", "copy", "reshape")
            and not self._is_total(one)
        ]
        if len(kept) * columns * 4 > _LARGEST_ROWS_BYTES:
            raise Refused("rows larger than the stack")
        for one in kept:
            yield f"float k_{self._names[one]}[{columns}];"
        for stage in range(last + 1):
            for one in needed:
                if stages[one] == stage and not self._is_vector(one):
                    yield from self._scalar(one)
            yield from self._columns(stage, loop, needed, stages, kept, columns)
        for total in loop.totals:
            if not self._is_vector(total.values[0]):
                place = self._place(total, is_inner=False)
                yield f"t_{self._names[total]}[{place}] += {self._names[total.values[0]]};"
        for number, one in loop.results:
            if not self._is_vector(one):
                index = self._index(self._made[number])
                made = self._written(number, self._names[one])
                yield f"{self._guard(one)}r{number}[{index}] = {made};"

    def _is_vector(self, value: Value) -> bool:
        return self._inner in self._along[value]

    def _scalar(self, one: Value) -> Iterator[str]:
        name = self._names[one]
        if self._is_total(one):
            yield f"const float {name} = (float)t_{name}[{self._place(one, is_inner=False)}];"
        elif one.operator in ("sum", "max"):
            if not self._is_vector(one.values[0]):  # a row of equal elements, or of one
                raise Refused("a sum of a scalar")
        else:
            yield f"const float {name} = {self._expression(one)};"

    def _columns(
        self,
        stage: int,
        loop: _Loop,
        needed: Sequence[Value],
        stages: Mapping[Value, int],
        kept: Sequence[Value],
        columns: int,
    ) -> Iterator[str]:
        """Yield the loop over the elements of a row for one stage."""
        ends: list[tuple[Value, str]] = []
        reductions = []
        for one in needed:
            if self._is_total(one) or one.operator not in ("sum", "max"):
                continue
            if stages[one] - 1 == stage:
                name, read = self._names[one], one.values[0]
                start = "0.f" if one.operator == "sum" else "-INFINITY"
                yield f"float {name} = {start};"
                reductions.append(f"reduction({'+' if one.operator == 'sum' else 'max'}:{name})")
                step = "{0} += {1};" if one.operator == "sum" else "{0} = {1} > {0} ? {1} : {0};"
                ends.append((read, step.format(name, "{0}")))
        for one in kept:
            if stages[one] == stage:
                ends.append((one, f"k_{self._names[one]}[c] = {{0}};"))
        for number, one in loop.results:
            if self._is_vector(one) and stages[one] == stage:
                index = self._index(self._made[number])
                guard = self._guard(one)
                made = self._written(number, "{0}")
                ends.append((one, f"{guard}r{number}[{index}] = {made};"))
        for total in loop.totals:
            read = total.values[0]
            if stages[read] == stage:
                ends += self._added(total, read, reductions)
        if not ends:
            return
        yield from self._starts(loop, stages, stage)
        if reductions:
            yield f"#pragma omp simd {' '.join(reductions)}"
        else:
            yield "#pragma omp simd"
        yield f"for (long c = 0; c < {columns}; c++) {{"
        done: set[Value] = set()
        for one, _ in ends:
            yield from self._vector(one, stage, stages, kept, done)
        for one, text in ends:
            yield text.format(self._names[one])
        yield "}"
        yield from self._finishes(loop, stages, stage)

    def _added(self, total: Value, read: Value, reductions: list[str]) -> list[tuple[Value, str]]:
        name = self._names[total]
        if self._inner in self._reduced[total] and self._is_vector(read):
            reductions.append(f"reduction(+:s_{name})")
            return [(read, f"s_{name} += {{0}};")]
        if not self._is_vector(read):
            return []
        memory = "b" if self._is_blocked(total) else "t"
        return [(read, f"{memory}_{name}[{self._place(total, is_inner=True)}] += {{0}};")]

    def _starts(self, loop: _Loop, stages: Mapping[Value, int], stage: int) -> Iterator[str]:
        for total in loop.totals:
            read = total.values[0]
            if stages[read] == stage and self._inner in self._reduced[total]:
                yield f"float s_{self._names[total]} = 0.f;"

    def _finishes(self, loop: _Loop, stages: Mapping[Value, int], stage: int) -> Iterator[str]:
        for total in loop.totals:
            read, name = total.values[0], self._names[total]
            if stages[read] == stage and self._inner in self._reduced[total]:
                if not self._is_vector(read):
                    raise Refused("a sum of a scalar")
                yield f"t_{name}[{self._place(total, is_inner=False)}] += s_{name};"

    def _vector(
        self,
        one: Value,
        stage: int,
        stages: Mapping[Value, int],
        kept: Sequence[Value],
        done: set[Value],
    ) -> Iterator[str]:
        """Yield what makes an element of a value in a loop over a row."""
        if one in done or not self._is_vector(one):
            return
        done.add(one)
        name = self._names[one]
        if self._is_total(one):
            yield f"const float {name} = (float)t_{name}[{self._place(one, is_inner=True)}];"
        elif one in kept and stages[one] < stage:
            yield f"const float {name} = k_{name}[c];"
        else:
            for read in one.values:
                yield from self._vector(read, stage, stages, kept, done)
            yield f"const float {name} = {self._expression(one)};"

    def _expression(self, one: Value) -> str:
        if one.operator == "load":
            read = f"a{one.argument}[{self._index(self._arguments[one])}]"
            is_narrow = self._laid_of(one.argument).dtype is torch.bfloat16
            return f"f_of_bfloat16({read})" if is_narrow else read
        if one.operator == "position":
            return f"(float)(int)({self._index(self._arguments[one])})"
        if one.operator == "reshape":
            return self._names[one.values[0]]
        given = [
            self._names[read] if isinstance(read, Value) else constant(read) for read in one.inputs
        ]
        return EXPRESSIONS[one.operator].format(*given)

    def _written(self, number: int, text: str) -> str:
        """Return a float as a result of the region has it."""
        is_narrow = self._form.results[number].dtype is torch.bfloat16
        return f"to_bfloat16({text})" if is_narrow else text

    def _index(self, strides: Sequence[int]) -> str:
        terms = [f"i{dim} * {strides[dim]}" for dim in range(self._inner) if strides[dim]]
        if strides[self._inner]:
            step = strides[self._inner]
            terms.append("c" if step == 1 else f"c * {step}")
        return " + ".join(terms) or "0"

    def _guard(self, one: Value) -> str:
        """Return the condition under which a result is written: once for each of its elements."""
        others = [dim for dim in range(self._inner) if dim not in self._along[one]]
        return f"if ({' && '.join(f'i{dim} == 0' for dim in others)}) " if others else ""


_C_TYPES = {
    torch.float32: "float",
    torch.bfloat16: "u16",
    torch.bool: "u8",
    torch.int64: "int64_t",
}


def _in_order(results: Sequence[Value]) -> Iterator[Value]:
    """Yield values, each behind what it reads."""
    seen: set[Value] = set()

    def visit(value: Value) -> Iterator[Value]:
        if value in seen:
            return
        seen.add(value)
        for one in value.values:
            yield from visit(one)
        yield value

    for result in results:
        yield from visit(result)


def _equal_axes(
    one: Value, read: Value, size: int
) -> Iterator[tuple[tuple[Value, int], tuple[Value, int]]]:
    """Yield the axes of a value and of what it reads that run through the same dimensions.

    Raises:
        Refused: a tensor smaller than the largest is cut in another way.
    """
    if one.operator == "reshape":
        if math.prod(one.shape) == size:
            return
        pairs = zip(
            [axis for axis, n in enumerate(one.shape) if n > 1],
            [axis for axis, n in enumerate(read.shape) if n > 1],
            strict=False,
        )
        if [n for n in one.shape if n > 1] != [n for n in read.shape if n > 1]:
            raise Refused("a small tensor in another shape")
        yield from (((one, here), (read, there)) for here, there in pairs)
        return
    offset = len(one.shape) - len(read.shape)
    for axis, extent in enumerate(read.shape):
        if extent > 1 and axis not in one.axes:
            yield (one, axis + offset), (read, axis)
