"""Scope of a converter: its layer, and the ONNX graph it writes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.entry.caffe.network import INT_MAX, CaffeLayer
from aoe.entry.caffe.text import Fields
from aoe.entry.caffe.weights import Array, StoredBlob
from aoe.errors import ModelImportError, OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class CaffeBlob:
    """A value of the graph; float32 unless a node says else."""

    name: str  # Of the value
    shape: tuple[int, ...]  # Its extents; 1 stands where the data decides
    open_axis: int | None = None  # The axis whose extent depends on the data, None if there is none

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(slots=True)
class GraphParts:
    """The ONNX graph as it grows."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)  # In the order of the layers
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)  # Initializers by name
    names: set[str] = field(default_factory=set)  # Of all values
    node_names: set[str] = field(default_factory=set)  # Of all nodes


def unused(wanted: str, names: set[str]) -> str:
    """Add a name to the names in use and return it: as wanted, or with a number."""
    name, number = wanted, 1
    while name in names:
        number += 1
        name = f"{wanted}#{number}"
    names.add(name)
    return name


@dataclass(slots=True, kw_only=True)
class LayerScope:
    """One layer while it is converted."""

    layer: CaffeLayer  # As the prototxt has it
    param: Fields  # Its parameters
    bottoms: tuple[CaffeBlob, ...]  # What it reads
    parts: GraphParts  # The graph so far
    # All weights by layer name, None if no file was given.
    stored: Mapping[str, tuple[StoredBlob, ...]] | None
    taken: set[str]  # Names of layers whose weights are in the graph

    @property
    def bottom(self) -> CaffeBlob:
        """The first blob it reads."""
        return self.bottoms[0]

    def add(
        self,
        op_type: str,
        inputs: Sequence[CaffeBlob],
        shape: Sequence[int],
        *,
        outputs: int = 1,
        open_axis: int | None = None,
        **attributes: Any,
    ) -> CaffeBlob:
        """Add a node and return its first result, which has `shape`.

        Raises:
            ModelImportError: the shape is empty, or larger than a blob may be.
        """
        found = self.checked(shape)
        name = unused(self.layer.name, self.parts.node_names)
        results = [unused(f"{name}:{number}", self.parts.names) for number in range(outputs)]
        names = [blob.name for blob in inputs]
        self.parts.nodes.append(helper.make_node(op_type, names, results, name, **attributes))
        return CaffeBlob(name=results[0], shape=found, open_axis=open_axis)

    def constant(self, values: Array, name: str = "constant") -> CaffeBlob:
        """Add a constant tensor and return it."""
        known = unused(f"{self.layer.name}/{name}", self.parts.names)
        self.parts.constants[known] = numpy_helper.from_array(np.asarray(values, order="C"), known)
        return CaffeBlob(name=known, shape=values.shape)

    def integers(self, values: int | Sequence[int], name: str = "constant") -> CaffeBlob:
        """Add a constant integer, or a list of such (int64), and return it."""
        return self.constant(np.asarray(values, np.int64), name)

    def numbers(self, value: float | Sequence[float], name: str = "constant") -> CaffeBlob:
        """Add a constant number, or a list of such (float32), and return it."""
        with np.errstate(over="ignore"):  # infinite, as in Caffe
            return self.constant(np.asarray(value, np.float32), name)

    def weights(self, *shapes: tuple[int, ...]) -> tuple[Array, ...]:
        """Return the trained arrays of this layer, exactly of these shapes.

        Raises:
            ModelImportError: there are none, another number, or others shapes.
            OptionError: no weight file was given.
        """
        name = self.layer.name
        if not shapes:
            return ()
        if self.stored is None:
            raise OptionError(
                "--weight",
                "a Caffe model has its weights in a second file",
                expected=f"weights for {self.layer.place}",
                hint="--weight=FILE.caffemodel",
            )
        if name in self.taken:
            raise self.error("two layers of this name, so whose weights they are is not clear")
        self.taken.add(name)
        blobs = self.stored.get(name)
        if blobs is None:
            raise self.error(
                "no weights for it in the file --weight names",
                got=f"those of {_some(sorted(self.stored)) or 'no layer'}",
                hint="do the two files belong together?",
            )
        if len(blobs) != len(shapes):
            raise self.error("number of its weights", got=len(blobs), expected=len(shapes))
        pairs = enumerate(zip(blobs, shapes, strict=True))
        return tuple(self._shaped(number, blob, shape) for number, (blob, shape) in pairs)

    def _shaped(self, number: int, blob: StoredBlob, shape: tuple[int, ...]) -> Array:
        found = blob.shaped(shape)
        if found is None:
            raise self.error(
                f"shape of weights {number}",
                got=list(blob.shape[:8]),
                expected=list(shape),
                hint="the two files are of different networks, or --input_shape changes what a "
                "layer of fixed size sees",
            )
        return found

    def checked(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a shape a blob can have.

        Raises:
            ModelImportError: an extent is below 1, or there are too many elements.
        """
        found = tuple(int(extent) for extent in shape)
        read = "; ".join(str(list(blob.shape)) for blob in self.bottoms[:4])
        if any(extent < 1 for extent in found):
            raise self.error("nothing would come out", got=f"{list(found)} of bottoms {read}")
        if math.prod(found) > INT_MAX:
            raise self.error(
                "more elements than a blob may have",
                got=f"{list(found)} of bottoms {read}",
                expected=f"at most {INT_MAX}",
            )
        return found

    def axis(self, value: int, *, rank: int | None = None) -> int:
        """Return an axis counted from the front.

        Raises:
            ModelImportError: the bottom has no such axis.
        """
        axes = self.bottom.rank if rank is None else rank
        if not -axes <= value < axes:
            raise self.error("no such axis", got=value, expected=f"{-axes} to {axes - 1}")
        return value % axes

    def same_shapes(self) -> tuple[int, ...]:
        """Return the one shape all bottoms have.

        Raises:
            ModelImportError: they differ.
        """
        shapes = [blob.shape for blob in self.bottoms]
        if len(set(shapes)) > 1:
            raise self.error("bottoms of several shapes", got=_some([*map(list, shapes)]))
        return shapes[0]

    def images(self) -> tuple[int, int, int, int]:
        """Return the shape of the bottom: images, channels, height, width.

        Raises:
            ModelImportError: it has another number of axes.
        """
        if self.bottom.rank != 4:
            raise self.error("bottom with another number of axes", got=self.bottom.rank, expected=4)
        images, channels, height, width = self.bottom.shape
        return images, channels, height, width

    def error(self, problem: str, **more: Any) -> ModelImportError:
        """Return an error that names the layer and its place in the file."""
        return ModelImportError(self.layer.place, problem, **more)


def _some(values: Sequence[object]) -> str:
    """Return the first of a list, for a message."""
    more = f" and {len(values) - 4} more" if len(values) > 4 else ""
    return ", ".join(map(str, values[:4])) + more
