"""Normalisation of channels that do not lie in rows: a Transpose, or a change of layout, in front.

Convolutions make planes of channels, or blocks of them, and networks normalise the channels of each
pixel (ConvNeXt, Swin). Where the result has its channels last, a row of them is copied from where
they lie; where a second Transpose puts them back, planes are walked pixels as vectors, and nothing
is turned at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from aoe import schedule as sch
from aoe.kernels.family import SUPPORTED, KernelTarget, Support
from aoe.kernels.halide.anchored import Anchored
from aoe.kernels.halide.chain import RESULT, check_around, estimate_cycles
from aoe.kernels.halide.iteration import Axis, axis_names, reshaped
from aoe.kernels.halide.reductions import fold_steps
from aoe.kernels.halide.rows import MOVED, SOURCE, Apart, RowPlan, plan_walk, result_steps
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.halide.tiling import (
    estimate_us,
    parallel_steps,
    shared_space,
    vector_choices,
    vector_steps,
)
from aoe.operators import REORDER_OUTPUT, Shape, facts_of, is_reorder, op_key
from aoe.operators.axes import normalized_axis
from aoe.operators.movement import permutation
from aoe.schedule import Schedule, Space, Step, Values
from aoe.workload import Layout, Operation, Workload

_TRANSPOSE = ("", "Transpose")
_RANK_MIN = 3
_SCRATCH_BYTES_MAX = 96 << 10
"""Of the rows of a tile of pixels."""
_SIDES = (4, 8, 16)
"""Of a square that is turned in registers; one of half the lanes is fastest, and tried first."""
_TILES = (8, 16, 32)
"""Pixels whose rows are kept at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """A workload whose channels are turned."""

    workload: Workload  # All of it
    front: Operation  # The operation that puts channels last
    anchor: Operation  # The normalisation
    back: Operation | None  # The Transpose that puts them back, if there is one
    given: Shape  # Shape of what is read
    made: Shape  # Shape of what is normalised

    @property
    def number(self) -> int:
        """Of the workload input that is normalised."""
        return int(self.front.inputs[0][1:])


def find_turned(workload: Workload, anchor: Operation) -> RowPlan | Support | None:
    """Return the loops of a normalisation of channels that do not lie in rows.

    Args:
        workload: All of it, in the plain layout.
        anchor: Its LayerNormalization, or one like it.

    Returns:
        The loops; why they are not computed; or None where nothing turns what is normalised.
    """
    found = _find_parts(workload, anchor)
    if not isinstance(found, _Parts):
        return found
    split = _split(found)
    if isinstance(split, Support):
        return split
    return _planes(found, split) if found.back is not None else _rows(found, split)


def _find_parts(workload: Workload, anchor: Operation) -> _Parts | Support | None:
    front = next((item for item in workload.operations if item.output == anchor.inputs[0]), None)
    if front is None or op_key(front) not in (_TRANSPOSE, REORDER_OUTPUT):
        return None
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    given, made = shapes[front.inputs[0]], shapes[front.output]
    turned = _puts_channels_last(workload, front, len(given))
    if not turned:
        return turned
    if normalized_axis(anchor) not in (-1, len(made) - 1):
        return Support(f"{anchor.op_type} of more than the channels behind {front.op_type}")
    if any(_reads(item, front) for item in workload.operations if item is not anchor):
        return Support(f"what {front.op_type} makes is read again")
    last = workload.operations[-1]
    is_back = op_key(last) == _TRANSPOSE and last.inputs[0] == anchor.output
    if is_back and permutation(last, len(made)) != (0, len(made) - 1, *range(1, len(made) - 1)):
        return Support("Transpose of what is normalised that does not put channels back")
    if is_back and op_key(front) != _TRANSPOSE:
        return Support("blocks of channels that are made planes")
    back = last if is_back else None
    return _Parts(workload=workload, front=front, anchor=anchor, back=back, given=given, made=made)


def _puts_channels_last(workload: Workload, front: Operation, rank: int) -> Support:
    """Check that an operation puts the channels of its input last."""
    source = front.inputs[0]
    if not source.startswith("x") or rank < _RANK_MIN:
        return Support(f"{front.op_type} of a computed value, or of no channels")
    spec = workload.inputs[int(source[1:])]
    if op_key(front) == REORDER_OUTPUT:
        is_last = bool(front.attributes.get("channels_last", 0)) and spec.block > 0
    else:
        is_last = permutation(front, rank) == (0, *range(2, rank), 1) and not spec.block
    return SUPPORTED if is_last else Support(f"{front.op_type} that does not put channels last")


def _reads(item: Operation, front: Operation) -> bool:
    return item is not front and bool({front.output, front.inputs[0]} & set(item.inputs))


def _split(parts: _Parts) -> Anchored | Support:
    """Return the workload without what turns it, split at its normalisation."""
    anchor = replace(parts.anchor, inputs=(parts.front.inputs[0], *parts.anchor.inputs[1:]))
    kept = [item for item in parts.workload.operations if item not in (parts.front, parts.back)]
    operations = tuple(anchor if item is parts.anchor else item for item in kept)
    workload = replace(parts.workload, operations=operations)
    at = operations.index(anchor)
    before, after = operations[:at], operations[at + 1 :]
    if any(is_reorder(item) for item in (*before, *after)):
        return Support("a reorder beside the one that puts channels last")
    checked = check_around(workload, anchor, (*before, *after))
    if not checked:
        return checked
    if not all(ref.startswith("x") for ref in anchor.inputs if ref):
        return Support(f"{anchor.op_type} by parameters that are computed")
    if any(facts_of(item).per_channel for item in (*before, *after)):
        return Support("a chain behind turned channels reads one value per channel")
    if parts.back is not None and (before or after):
        return Support("a chain between two Transposes")
    if parts.back is None and workload.output.shape != parts.made:
        return Support(f"the result of {anchor.op_type} is broadcast by what follows")
    return Anchored(
        workload=workload, anchor=anchor, source=parts.number, before=before, after=after
    )


def _shaped(parts: _Parts, split: Anchored, shapes: Mapping[str, Shape]) -> Workload:
    """Return a workload of the same inputs, some of other shapes, in the loops of the result."""
    inputs = list(split.workload.inputs)
    for ref, shape in shapes.items():
        at = int(ref[1:])
        inputs[at] = replace(inputs[at], shape=shape, layout=Layout.PLAIN, block=0)
    return reshaped(split.workload, inputs, split.workload.output.shape)


def _rows(parts: _Parts, split: Anchored) -> RowPlan | Support:
    """Return the loops of a result whose channels are last: a row of them is copied first."""
    shaped = _shaped(parts, split, {parts.front.inputs[0]: parts.made})
    names = axis_names(shaped)
    what, keep = parts.anchor.op_type, names[:1]
    plan = plan_walk(split, shaped, names[-1:], what, is_computed=True, keep=keep)
    if isinstance(plan, Support):
        return plan
    if not plan.may_keep:
        return Support(f"{plan.length} channels that do not lie in rows are too many")
    block = parts.workload.inputs[parts.number].block or 1
    if block == 1 and not _is_turnable(plan):
        return Support(f"{plan.length} planes are not turned in squares")
    apart = Apart(number=parts.number, length=parts.given[1], block=block)
    return replace(plan, apart=apart)


def _is_turnable(plan: RowPlan) -> bool:
    """Return True where squares of pixels and channels fit into planes, and tiles into scratch."""
    pixels = plan.rows[-1].extent if len(plan.rows) > 1 else 1
    fits = pixels >= _TILES[0] and _TILES[0] * plan.kept_bytes <= _SCRATCH_BYTES_MAX
    return fits and not plan.length % _SIDES[0]


def _planes(parts: _Parts, split: Anchored) -> RowPlan | Support:
    """Return the loops of a result in planes, as what is read: pixels are vectors."""
    parameter = (parts.given[1], *(1,) * (len(parts.given) - 2))
    inputs = split.workload.inputs
    sizes = {ref: inputs[int(ref[1:])].size for ref in parts.anchor.inputs[1:] if ref}
    if any(size not in (1, parts.given[1]) for size in sizes.values()):
        return Support(f"{parts.anchor.op_type} by parameters of another shape")
    one = (1,) * len(parameter)
    shapes = {ref: parameter if size > 1 else one for ref, size in sizes.items()}
    shaped = _shaped(parts, split, shapes)
    names = axis_names(shaped)[1:2]
    what = parts.anchor.op_type
    return plan_walk(split, shaped, names, what, is_computed=False, takes_columns=True)


def is_turned(plan: RowPlan) -> bool:
    """Return True for loops that `turned_space` shares out in tiles of pixels."""
    in_planes = bool(plan.columns) and not plan.nest.workload.blocked
    return in_planes or (plan.apart is not None and plan.apart.block == 1)


def turned_space(plan: RowPlan, target: KernelTarget, cycles: int) -> Space:
    """Return tiles of pixels, vectors, what is turned at once, and tasks.

    Args:
        plan: The loops.
        target: Vector width and threads.
        cycles: Of one vector of the operator, without the chain.
    """
    output = plan.nest.workload.output
    cycles += estimate_cycles(plan.nest.parts.after)
    work = estimate_us(output.size, cycles, 8 * output.size, target)
    if plan.columns:
        return _planes_space(plan, target, work)
    return _rows_space(plan, target, work)


def _planes_space(plan: RowPlan, target: KernelTarget, work: float) -> Space:
    pixels = plan.columns[-1].extent
    tiles = tuple(n for n in vector_choices(pixels, target.vector_lanes) if n <= pixels)
    parts = prod(axis.extent for axis in _around_tiles(plan, tiles[0]))
    unrolled = tuple(n for n in (1, 2, 4) if not plan.length % n)
    knobs = {"tile": tiles, "unroll": unrolled}

    def legal(values: Values) -> bool:
        return _can_share(plan, values)

    shapes = product(reversed(tiles[:2]), (unrolled[-1], 1))
    return shared_space(work, parts, target, knobs, shapes, legal, tries_most=True)


def _rows_space(plan: RowPlan, target: KernelTarget, work: float) -> Space:
    pixels, most = plan.rows[-1].extent, _SCRATCH_BYTES_MAX // plan.kept_bytes
    tiles = tuple(n for n in _TILES if n <= min(pixels, most))
    sides = tuple(n for n in _SIDES if not plan.length % n and n <= tiles[-1])
    parts = prod(axis.extent for axis in _around_tiles(plan, tiles[0]))
    vectors = vector_choices(plan.length, target.vector_lanes)
    knobs = {"tile": tiles, "side": sides, "vector": vectors}

    def legal(values: Values) -> bool:
        in_squares = not int(values["tile"]) % int(values["side"])
        return in_squares and _can_share(plan, values)

    nearest = sorted(sides, key=lambda side: abs(side - target.vector_lanes // 2))[:2]
    tried = (tiles[len(tiles) // 2], tiles[-1])
    shapes = ((tile, side, vectors[0]) for side in nearest for tile in tried)
    return shared_space(work, parts, target, knobs, shapes, legal)


def _can_share(plan: RowPlan, values: Values) -> bool:
    return int(values["tasks"]) <= prod(
        axis.extent for axis in _around_tiles(plan, int(values["tile"]))
    )


def _around_tiles(plan: RowPlan, tile: int) -> tuple[Axis, ...]:
    """Return the loops around a tile of pixels, outermost first; the last runs over the tiles."""
    pixels = plan.columns[-1] if plan.columns else plan.rows[-1]
    outer = plan.rows if plan.columns else plan.rows[:-1]
    return (*outer, Axis(f"{pixels.name}_tile", -(-pixels.extent // tile)))


def turned_schedule(plan: RowPlan, values: Values, folds: Sequence[str]) -> Schedule:
    """Return the steps of a configuration of `turned_space`."""
    steps = _planes_steps if plan.columns else _rows_steps
    return Schedule(tuple(steps(plan, values, folds)))


def _planes_steps(plan: RowPlan, values: Values, folds: Sequence[str]) -> Iterator[Step]:
    """Yield steps that walk the planes of a tile of pixels, which are vectors."""
    tile, unroll, tasks = (int(values[name]) for name in ("tile", "unroll", "tasks"))
    pixels, channel, around = plan.columns[-1].name, plan.inner.name, _around_tiles(plan, tile)
    tiles = around[-1].name
    outer = [axis.name for axis in reversed(around)]
    yield sch.Split(RESULT, pixels, tiles, pixels, tile, sch.Tail.SHIFT_INWARDS)
    yield sch.Reorder(RESULT, (pixels, channel, *outer))
    if tile > 1:
        yield sch.Vectorize(RESULT, pixels, tile)
    if unroll > 1:
        yield sch.Unroll(RESULT, channel, unroll)
    yield from parallel_steps(RESULT, around, tasks)
    for fold in folds:
        yield from fold_steps(fold, replace(plan.around, vector=tile), RESULT, tiles)


def _rows_steps(plan: RowPlan, values: Values, folds: Sequence[str]) -> Iterator[Step]:
    """Yield steps that turn the rows of a tile of pixels in registers, and walk one by one."""
    tile, side, vector, tasks = (int(values[name]) for name in ("tile", "side", "vector", "tasks"))
    pixel, channel, around = plan.rows[-1].name, plan.inner.name, _around_tiles(plan, tile)
    tiles = around[-1].name
    yield from result_steps(plan, vector, 1)
    yield sch.Split(RESULT, pixel, tiles, pixel, tile, sch.Tail.SHIFT_INWARDS)
    yield from parallel_steps(RESULT, around, tasks)
    yield sch.ComputeAt(SOURCE, RESULT, tiles)
    yield sch.StoreIn(SOURCE, sch.Memory.STACK)
    across, along = f"{channel}_t", f"{pixel}_t"
    yield sch.Split(SOURCE, channel, channel, across, side, sch.Tail.GUARD)
    yield sch.Split(SOURCE, pixel, pixel, along, side, sch.Tail.GUARD)
    yield sch.Reorder(SOURCE, (across, along, channel, pixel))
    yield sch.Vectorize(SOURCE, across, side)
    yield sch.Unroll(SOURCE, along, side)
    yield sch.ComputeAt(MOVED, SOURCE, channel)
    yield sch.StoreIn(MOVED, sch.Memory.STACK)
    yield sch.Reorder(MOVED, (pixel, channel))
    yield from vector_steps(MOVED, pixel, side)
    yield sch.Unroll(MOVED, channel, side)
    for fold in folds:
        yield from fold_steps(fold, plan.around, RESULT, pixel)
