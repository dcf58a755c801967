"""Records of ranges of shapes as answers for the fixed shapes they hold.

A range has records of blocks of rows, of attention for some numbers of queries, and of images with
open axes. The schedule of each comes from knobs; where a fixed shape is computed by the same
operations, these knobs give its schedule if they are legal there, else the record's steps do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

import onnx

from aoe.bank.journal import BankJournal
from aoe.bank.operators import OperatorBank, key_of
from aoe.bank.records.operator import StoredAnswer
from aoe.entry.shape_range import holds, parse_shape_range
from aoe.errors import OptionError
from aoe.graph.open_rows import one_row
from aoe.kernels.algorithms import allowed_space
from aoe.kernels.family import KernelTarget, Role
from aoe.kernels.registry import FAMILIES, OPEN_EXTENTS
from aoe.om.cases import Shapes, input_shapes
from aoe.operators import Shape, number, op_key
from aoe.workload import Operation, TensorSpec, Workload
from aoebank import AoebankError

_IMAGE_RANK = 4
_PLAIN_PRODUCTS = frozenset({("", "MatMul"), ("", "Add")})
"""What a Gemm is where it is taken apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Covered:
    """A record, and how many rows, queries or elements its workload has."""

    workload: Workload
    answer: StoredAnswer
    size: int


@dataclass(slots=True)
class CoveringRecords:
    """Gives the answers of ranges of shapes that hold a workload."""

    bank: OperatorBank  # Where the records are; each file is read once
    target: KernelTarget  # Its knobs are for
    _known: dict[str, Mapping[str, Sequence[_Covered]]] = field(default_factory=dict, init=False)

    def __call__(self, workload: Workload) -> Iterator[StoredAnswer]:
        """Yield the answers, with schedules for the workload, nearest in size first.

        Whether the last of them fit the workload has still to be checked, as of any record.

        Args:
            workload: Of fixed shape.

        Raises:
            BankFormatError: the bank file is corrupt.
        """
        records = self._records(workload.op_type)
        if not records or workload.op_type not in FAMILIES:
            return
        family = FAMILIES[workload.op_type]
        space = allowed_space(family, workload, self.target)
        for key, size in _of_fixed(workload).items():
            found = [one for one in records.get(key, ()) if _fits(one.workload, workload)]
            for one in sorted(found, key=partial(_distance, size)):
                knobs = one.answer.configuration
                if space is not None and space.is_legal(knobs):
                    schedule = family.schedule(workload, knobs, self.target)
                    yield replace(one.answer, schedule=schedule)
                else:  # choices follow from extents: its steps may fit though its knobs do not
                    yield one.answer

    def _records(self, op_type: str) -> Mapping[str, Sequence[_Covered]]:
        """Return the records of a family by their templates."""
        if op_type not in self._known:
            found: dict[str, list[_Covered]] = {}
            for workload, answer in self.bank.range_records(op_type):
                for key, size in _of_record(workload).items():
                    one = _Covered(workload=workload, answer=answer, size=size)
                    found.setdefault(key, []).append(one)
            self._known[op_type] = found
        return self._known[op_type]


@dataclass(frozen=True, slots=True)
class GuardedRecords:
    """Answers of ranges of shapes, fewer where a kernel family raises: a bug costs no run."""

    records: Callable[[Workload], Iterable[StoredAnswer]]  # The answers for a workload
    warn: Callable[[str], object]  # Tells the user; of each fault once
    _told: set[str] = field(default_factory=set, init=False)

    def __call__(self, workload: Workload) -> Iterator[StoredAnswer]:
        """Yield the answers up to a fault.

        Raises:
            AoebankError, OSError: the bank or the disk cannot be used.
        """
        try:
            yield from self.records(workload)
        except (AoebankError, OSError):
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            problem = f"records of ranges, kernel family {workload.op_type}: {what}"
            if problem not in self._told:
                self._told.add(problem)
                self.warn(problem)


def _distance(size: int, one: _Covered) -> tuple[bool, int]:
    """Return a key that orders records for a workload of a size.

    Knobs of fewer rows fit: they come before those of more, whose tiles may be too large.
    """
    return one.size > size, abs(one.size - size)


# ---- templates: record keys of workloads without what a range leaves open, with their sizes ----


def _of_record(workload: Workload) -> dict[str, int]:
    """Return the templates of a record: its images, its attention, or its rows."""
    if workload.is_open:
        return _image(workload)
    return {**_attention(workload), **_rows(workload, 1)}


def _of_fixed(workload: Workload) -> dict[str, int]:
    """Return the templates of a workload of fixed shape, whichever dimensions count its rows."""
    found = {**_image(workload), **_attention(workload)}
    for rank in range(1, len(workload.output.shape) + 1):
        found |= _rows(workload, rank)
    return found


def _image(workload: Workload) -> dict[str, int]:
    """Return the template without batch, rows and columns."""

    def closed(spec: TensorSpec) -> TensorSpec:
        is_image = len(spec.shape) == _IMAGE_RANK and not spec.constant
        return replace(spec, shape=(1, spec.shape[1], 1, 1) if is_image else spec.shape, open=())

    inputs, output = tuple(map(closed, workload.inputs)), closed(workload.output)
    return {key_of(replace(workload, inputs=inputs, output=output)): workload.output.size}


def _attention(workload: Workload) -> dict[str, int]:
    """Return the templates without batches, queries and keys, however matrices are stored.

    A mask that follows from the shapes is a constant where these are fixed, and computed else.
    """
    family = OPEN_EXTENTS.get(workload.op_type)
    if family is None:
        return {}
    turned = (family.turned(workload, number) for number in range(len(workload.inputs)))
    found = {}
    for one in (workload, *filter(None, turned)):
        roles = family.roles(one)
        if roles is None:
            continue
        *inputs, output = (
            replace(spec, shape=tuple(_closed(spec.shape, counted)), constant=False)
            for spec, counted in zip((*one.inputs, one.output), roles, strict=True)
        )
        queries = workload.output.shape[roles[-1].index(Role.ROWS)]
        found[key_of(replace(one, inputs=tuple(inputs), output=output))] = queries
    return found


def _closed(shape: Shape, roles: Sequence[Role]) -> Iterator[int]:
    for extent, role in zip(shape, roles, strict=True):
        yield extent if role is Role.CLOSED else 1


def _rows(workload: Workload, rank: int) -> dict[str, int]:
    """Return the template of one row, where that many leading dimensions count rows."""
    row = one_row(workload, rank)
    rows = prod(workload.output.shape[:rank])
    return {} if row is None else {key_of(_with_plain_products(row)): rows}


def _with_plain_products(workload: Workload) -> Workload:
    """Return a workload whose Gemm is a MatMul and an Add, of no version.

    ONNX Runtime makes these a Gemm of two dimensions where shapes are fixed, and leaves them where
    rows are open.
    """
    made, names = list[Operation](), dict[str, str]()
    for operation in workload.operations:
        refs = tuple(names.get(ref, ref) for ref in operation.inputs)
        parts = [replace(operation, inputs=refs)]
        if _is_plain_gemm(operation):
            plain = replace(operation, attributes={})
            parts = [replace(plain, op_type="MatMul", inputs=refs[:2])]
            if refs[2:]:
                product = f"t{len(made)}"
                parts.append(replace(plain, op_type="Add", inputs=(product, refs[2])))
        for part in parts:
            version = 1 if op_key(part) in _PLAIN_PRODUCTS else part.version
            made.append(replace(part, version=version, output=f"t{len(made)}"))
        names[operation.output] = made[-1].output
    return replace(workload, operations=tuple(made))


def _is_plain_gemm(operation: Operation) -> bool:
    """True for a Gemm that neither scales nor turns what it multiplies."""
    factors = [number(operation.attributes, name, 1.0) for name in ("alpha", "beta")]
    turned = [number(operation.attributes, name, 0) for name in ("transA", "transB")]
    return op_key(operation) == ("", "Gemm") and factors == [1.0, 1.0] and turned == [0, 0]


def _fits(record: Workload, workload: Workload) -> bool:
    """True if a workload has the extents of a record along all axes the record has not open."""
    if not record.is_open:  # its template has said it
        return True
    specs = zip((*record.inputs, record.output), (*workload.inputs, workload.output), strict=True)
    return all(
        axis in one.open or one.shape[axis] == other.shape[axis]
        for one, other in specs
        for axis in range(len(one.shape))
    )


def covering_ranges(journal: BankJournal, proto: onnx.ModelProto) -> tuple[str, ...]:
    """Return the ranges the bank has kernels for that hold the shapes of a model.

    They were tuned for a model of that name, whose extents were open.

    Args:
        journal: Of the run.
        proto: The model, with fixed shapes.
    """
    given = input_shapes(proto)
    return tuple(text for text in sorted(set(_ranges(journal))) if _holds(text, given))


def range_lines(ranges: tuple[str, ...]) -> Iterator[str]:
    """Yield a line on each range of the bank that holds a shape: how its kernels are used."""
    for one in ranges:
        yield f"the bank has kernels for a range with this shape in it: --input_shape={one!r}"


def _holds(text: str, given: Shapes) -> bool:
    try:
        shapes = parse_shape_range(text)
    except OptionError:  # of another version
        return False
    return holds(shapes, {name: given[name] for name in shapes if name in given})


def _ranges(journal: BankJournal) -> Iterator[str]:
    for file in journal.bank.iter_files():
        for line in journal.bank.iter_provenance(file):
            if line.model.get("name") == journal.model["name"] and "shape_range" in line.model:
                yield str(line.model["shape_range"])
