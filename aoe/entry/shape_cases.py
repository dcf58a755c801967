"""Several static shapes of one model: `--input_shape` given several times, or AOE's profiles.

AOE and ATC write `-1` for an extent that differs and say in an option of its own what it may be:
`--input_shape="x:-1,3,224,224" --dynamic_batch_size="1,2,4"`. Source: AOE, command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from aoe.entry.input_shapes import OPEN, parse_input_shape
from aoe.errors import OptionError
from aoe.workload import shapes_text

Shapes = Mapping[str, tuple[int, ...]]

BATCH, IMAGE, DIMS = "--dynamic_batch_size", "--dynamic_image_size", "--dynamic_dims"
_EXAMPLES = {
    BATCH: '--input_shape="x:-1,3,224,224" --dynamic_batch_size="1,2,4"',
    IMAGE: '--input_shape="x:1,3,-1,-1" --dynamic_image_size="416,416;832,832"',
    DIMS: '--input_shape="x:-1,3,-1" --dynamic_dims="1,224;8,448"',
}


def parse_shape_cases(
    texts: Sequence[str],
    *,
    batch_size: str | None = None,
    image_size: str | None = None,
    dims: str | None = None,
) -> tuple[str, ...]:
    """Return the shapes to tune for, each as one `--input_shape` says them; none for no option.

    Args:
        texts: What was given with `--input_shape`; several stand for themselves.
        batch_size: `"1,2,4"`, for first extents that are `-1`.
        image_size: `"416,416;832,832"`, for inputs with two extents that are `-1`.
        dims: `"1,224;8,448"`, in each case a value for every `-1`, in the order of the text.

    Raises:
        OptionError: options that exclude each other, one without a value, an extent nothing says,
            values that do not fit the shapes, or a case that stands there twice.
    """
    given = {BATCH: batch_size, IMAGE: image_size, DIMS: dims}
    profiles = [(option, text) for option, text in given.items() if text is not None]
    if len(profiles) > 1:
        raise OptionError(profiles[1][0], f"given together with {profiles[0][0]}")
    if not profiles:
        found = [parse_input_shape(text, open_extents=True) for text in texts]
        for shapes in found:
            _refuse_open(shapes)
        return _distinct(found, "--input_shape")
    option, text = profiles[0]
    if len(texts) != 1:
        raise OptionError(
            option,
            "needs one --input_shape whose open extents are -1",
            got=f"{len(texts)} of them",
            hint=_EXAMPLES[option],
        )
    shapes = parse_input_shape(texts[0], open_extents=True)
    values = [*_values(text, option)]
    if not values:
        raise OptionError(
            option, "no value in it", got=repr(text), hint=f"for example {_EXAMPLES[option]}"
        )
    if OPEN not in chain.from_iterable(shapes.values()):
        raise OptionError(
            option,
            "no extent of --input_shape is -1",
            got=shapes_text(shapes),
            hint=f"for example {_EXAMPLES[option]}",
        )
    return _distinct([_filled(shapes, one, option) for one in values], option)


def _distinct(cases: Sequence[Shapes], option: str) -> tuple[str, ...]:
    texts = tuple(map(shapes_text, cases))
    twice = [text for number, text in enumerate(texts) if cases[number] in cases[:number]]
    if twice:
        raise OptionError(option, "the same shapes twice", got=twice[0])
    return texts


def _refuse_open(shapes: Shapes) -> None:
    for name, shape in shapes.items():
        if OPEN in shape:
            raise OptionError(
                "--input_shape",
                f"an extent of {name} is open, and nothing says what it may be",
                got=",".join(map(str, shape)),
                hint=_EXAMPLES[BATCH],
            )


def _values(text: str, option: str) -> Iterator[tuple[int, ...]]:
    """Yield the values of each case."""
    parts = text.split("," if option == BATCH else ";")
    for part in filter(None, (part.strip() for part in parts)):
        try:
            values = tuple(int(value) for value in part.split(","))
        except ValueError:
            values = ()
        if not values or min(values) < 1:
            raise OptionError(
                option,
                "not extents of 1 and more",
                got=repr(part),
                hint=f"for example {_EXAMPLES[option]}",
            )
        yield values


def _filled(shapes: Shapes, values: tuple[int, ...], option: str) -> Shapes:
    """Return the shapes of one case.

    Raises:
        OptionError: the values do not fit the extents that are open.
    """
    places = _batches if option == BATCH else _images if option == IMAGE else _all_extents
    per_input = places(shapes, values)
    found = {}
    for name, shape in shapes.items():
        fill = iter(per_input[name])
        found[name] = tuple(next(fill) if extent == OPEN else extent for extent in shape)
    return found


def _batches(shapes: Shapes, values: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
    for name, shape in shapes.items():
        if OPEN in shape[1:]:
            raise OptionError(
                BATCH,
                f"another extent of {name} than the first is open",
                got=",".join(map(str, shape)),
                hint=f"for several extents {_EXAMPLES[DIMS]}",
            )
    return dict.fromkeys(shapes, values)


def _images(shapes: Shapes, values: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
    for name, shape in shapes.items():
        if shape.count(OPEN) not in (0, 2) or len(values) != 2:
            raise OptionError(
                IMAGE,
                f"height and width do not fit the open extents of {name}",
                got=f"{','.join(map(str, values))} for {','.join(map(str, shape))}",
                expected="two values, and two extents that are -1",
                hint=f"for example {_EXAMPLES[IMAGE]}",
            )
    return dict.fromkeys(shapes, values)


def _all_extents(shapes: Shapes, values: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
    counts = {name: shape.count(OPEN) for name, shape in shapes.items()}
    if len(values) != sum(counts.values()):
        raise OptionError(
            DIMS,
            "each case needs a value for every extent that is -1",
            got=f"{len(values)} in {','.join(map(str, values))}",
            expected=f"{sum(counts.values())} for {shapes_text(shapes)}",
            hint=f"for example {_EXAMPLES[DIMS]}",
        )
    left = iter(values)
    return {name: tuple(next(left) for _ in range(count)) for name, count in counts.items()}
