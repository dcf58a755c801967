"""Inputs a model is run on: arrays the user gives in files, else made-up ones."""

from __future__ import annotations

import hashlib
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aoe.errors import OptionError, OutputError, RunError
from aoe.ort.bfloat16 import BFLOAT16, as_bfloat16
from aoe.ort.sessions import InputSpec, input_specs, made_up_array, random_feed

if TYPE_CHECKING:
    import onnx
    import onnxruntime as ort

Array = np.ndarray[Any, Any]

RANDOM = "random"
"""Stands for every input without a file."""
_UNREADABLE = (
    *(OSError, EOFError, KeyError, ValueError, MemoryError, SyntaxError, tokenize.TokenError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What NumPy raises on files that are damaged, or something else altogether."""
_LAYOUT = "a folder or .npz file for each set, with an array for each input: DIR/first/NAME.npy"
_HOW_TO_SAVE = 'numpy.save("x.npy", array); strings as numpy.array([...], dtype=str)'


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayFile:
    """An array in a file; `member` is its name in an `.npz`, empty for an `.npy`."""

    path: Path
    member: str = ""

    def load(self) -> Array:
        """Return the array in C order, text as Python strings.

        Raises:
            RunError: there is no single array that can be read.
        """
        try:
            with self.path.open("rb") as file:
                found = np.load(file, allow_pickle=False)
                if self.member:
                    found = found[self.member]
            if not isinstance(found, np.ndarray):
                if self.member:
                    raise ValueError("no array under this name")
                raise RunError(str(self), "holds several arrays", expected="an .npy file with one")
            if found.dtype.kind in "US":
                return _as_strings(found)
            return np.asarray(as_bfloat16(found), order="C")
        except FileNotFoundError as error:
            raise RunError(str(self), "no such file", hint=_HOW_TO_SAVE) from error
        except _UNREADABLE as error:
            why = "" if "pickle" in str(error) else f": {error}"
            raise RunError(str(self), f"not a NumPy array file{why}", hint=_HOW_TO_SAVE) from error

    def __str__(self) -> str:
        return f"{self.path}[{self.member}]" if self.member else str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSet:
    """Arrays for one run of a model; a value that can be sent to another process."""

    place: str  # Where the set comes from, for messages
    # By input name. A file cannot be named `a/b`, so `a_b` stands for it too.
    files: Mapping[str, ArrayFile]
    # Files for the inputs in their order, for those who do not name them.
    positional: tuple[ArrayFile, ...] = ()
    others_random: bool = False  # True to make up the inputs without a file, False to miss them

    def check(self, specs: Sequence[InputSpec], *, without_nan: bool = False) -> None:
        """Compare names, element types and shapes with the inputs of a model.

        Args:
            specs: Inputs of the model.
            without_nan: True where ranges of numbers are taken from the arrays.

        Raises:
            OptionError: an input is unknown or missing, or an array does not fit.
            RunError: a file cannot be read.
        """
        files = self._by_input(specs)
        for spec in specs:
            if spec.name in files:
                array = files[spec.name].load()
                self._check(spec, files[spec.name], array)
                is_float = array.dtype.kind == "f" or array.dtype == BFLOAT16
                if without_nan and is_float and np.isnan(array).any():
                    raise OptionError(
                        f"input {spec.name}: {files[spec.name]}",
                        "the array has NaN, from which no range can be taken",
                        got=f"{int(np.isnan(array).sum())} NaN in {array.size} values",
                        expected="numbers as the model meets them",
                        hint="leave this set out, or write numbers in their place",
                    )

    def load(self, specs: Sequence[InputSpec], seed: int) -> dict[str, Array]:
        """Return an array for each input of a model; `seed` is of the made-up ones.

        Raises:
            OptionError: an input is unknown or missing, or an array does not fit.
            RunError: a file cannot be read, or nothing can be made up for an input.
        """
        rng = np.random.default_rng(seed)
        files = self._by_input(specs)
        feed: dict[str, Array] = {}
        for spec in specs:
            if spec.name not in files:
                feed[spec.name] = made_up_array(spec, rng)
                continue
            array = files[spec.name].load()
            self._check(spec, files[spec.name], array)
            feed[spec.name] = array
        return feed

    def files_of(self, names: Sequence[str]) -> dict[str, ArrayFile]:
        """Return the files by the input they are for; a file for no input keeps its name."""
        found = {_named(name, names) or name: file for name, file in self.files.items()}
        free = [name for name in names if name not in found]
        beyond = [str(file) for file in self.positional[len(free) :]]
        return found | dict(zip([*free, *beyond], self.positional, strict=False))

    def _by_input(self, specs: Sequence[InputSpec]) -> dict[str, ArrayFile]:
        names = [spec.name for spec in specs]
        found = self.files_of(names)
        unknown = [name for name in found if name not in names]
        if unknown:
            raise OptionError(
                self.place, "the model has no such input", got=unknown[0], expected=names
            )
        missing = [name for name in names if name not in found]
        if missing and not self.others_random:
            raise OptionError(
                self.place,
                "inputs without a value",
                got=missing,
                expected=names,
                hint=f"give each a file, or all others made-up values: --input {RANDOM}",
            )
        return found

    @staticmethod
    def _check(spec: InputSpec, file: ArrayFile, array: Array) -> None:
        where = f"input {spec.name}: {file}"
        if spec.dtype is None:
            raise OptionError(where, "NumPy files have no such element type", got=spec.type)
        if array.dtype != spec.dtype:
            raise OptionError(
                where,
                "the array has another element type",
                got=_type_name(array.dtype),
                expected=_type_name(spec.dtype),
            )
        if not spec.takes(array.shape):
            raise OptionError(
                where, "the array has another shape", got=array.shape, expected=spec.shape
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInputs:
    """Everything a model is run on while it is judged: given sets, or one that is made up."""

    # Given sets; the first is timed, results are compared on all of them.
    sets: tuple[InputSet, ...] = ()
    seed: int = 0  # Of made-up arrays
    # Of made-up arrays by input, where the model leaves them open.
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def check(self, proto: onnx.ModelProto, *, without_nan: bool = False) -> None:
        """Compare all sets with the inputs of a model before anything is run; see `InputSet`."""
        specs = specs_of_proto(proto)
        for given in self.sets:
            given.check(specs, without_nan=without_nan)

    def feeds(self, session: ort.InferenceSession) -> Iterator[dict[str, Array]]:
        """Yield the inputs of each run, at least of one, loading them as they are asked for.

        Raises:
            OptionError: a set does not fit the model.
            RunError: a file cannot be read, or nothing can be made up for an input.
        """
        if not self.sets:
            yield random_feed(session, self.seed, self.shapes)
        asked = self.shapes
        specs = [replace(one, shape=asked.get(one.name, one.shape)) for one in input_specs(session)]
        for given in self.sets:
            yield given.load(specs, self.seed)

    def digest(self) -> str:
        """Return the SHA-256 of all arrays of the sets, with their names.

        Raises:
            RunError: a file cannot be read.
        """
        found = hashlib.sha256()
        for given in self.sets:
            named = [*sorted(given.files.items()), *enumerate(given.positional)]
            for name, file in named:
                array = file.load()
                found.update(f"{name} {array.dtype} {array.shape} ".encode())
                text = array.dtype.kind == "O"
                found.update(repr(array.tolist()).encode() if text else array.tobytes())
        return found.hexdigest()

    def first(self, session: ort.InferenceSession) -> dict[str, Array]:
        """Return the inputs that are timed."""
        return next(self.feeds(session))


MADE_UP = ModelInputs()
"""Made-up arrays only."""


# ---- where sets come from ----


def parse_inputs(texts: Sequence[str]) -> tuple[InputSet, ...]:
    """Return the set of `--input NAME:x.npy`, also `NAME=x.npy`, `x.npy` and `random`.

    Raises:
        OptionError: an input is given twice.
    """
    files: dict[str, ArrayFile] = {}
    positional: list[ArrayFile] = []
    for text in texts:
        if text == RANDOM:
            continue
        name, file = _split(text)
        if name in files:
            raise OptionError("--input", "input given twice", got=name)
        if name:
            files[name] = file
        else:
            positional.append(file)
    if not files and not positional:
        return ()
    return (
        InputSet(
            place="--input",
            files=files,
            positional=tuple(positional),
            others_random=RANDOM in texts,
        ),
    )


def read_input_sets(directory: Path, option: str = "--inputs") -> tuple[InputSet, ...]:
    """Return the sets in a directory: one for each folder of `.npy` files and each `.npz` file.

    A directory that holds `.npy` files itself is one set, and so is an `.npz` file in its place.

    Args:
        directory: Where to look; the order of the sets is that of their names.
        option: What named it, for messages.

    Raises:
        OptionError: there is nothing of that kind, or folders and files are mixed up.
    """
    where = f"{option} {directory}"
    if directory.is_file():
        return (_archive_set(directory, option),)
    if not directory.is_dir():
        raise OptionError(where, "no such directory", expected=_LAYOUT)
    entries = [entry for entry in sorted(directory.iterdir()) if not entry.name.startswith(".")]
    own = [entry for entry in entries if entry.suffix == ".npy"]
    parts = [entry for entry in entries if entry.is_dir() or entry.suffix == ".npz"]
    if own and parts:
        raise OptionError(
            where,
            "arrays and whole sets side by side",
            got=f"{own[0].name} and {parts[0].name}",
            expected=_LAYOUT,
        )
    if own:
        return (_folder_set(directory, option),)
    if not parts:
        raise OptionError(where, "no arrays there", expected=_LAYOUT)
    return tuple(
        _folder_set(entry, option) if entry.is_dir() else _archive_set(entry, option)
        for entry in parts
    )


def save_input_sets(
    given: Mapping[str, Any] | Sequence[Mapping[str, Any]], directory: Path
) -> tuple[InputSet, ...]:
    """Write arrays that are in memory to files, so that the measuring process can read them.

    Args:
        given: Arrays by input name, or several such sets.
        directory: Empty directory for the files; they have to stay while the sets are used.

    Raises:
        OptionError: a value is no array that ONNX Runtime takes, or there is no set.
    """
    sets = [given] if isinstance(given, Mapping) else list(given)
    if not sets or not all(isinstance(arrays, Mapping) and arrays for arrays in sets):
        raise OptionError("inputs", "no arrays by input name", got=type(given).__name__)
    saved = []
    for number, arrays in enumerate(sets):
        files = {
            name: _saved(name, value, directory / f"{number}_{position}.npy")
            for position, (name, value) in enumerate(arrays.items())
        }
        saved.append(InputSet(place=f"inputs[{number}]", files=files))
    return tuple(saved)


def _split(text: str) -> tuple[str, ArrayFile]:
    """Return name and file of `NAME:FILE` or `NAME=FILE`; no name for a file alone.

    Names may hold colons (`x:0`) and so may paths: the first split that leaves a file is meant.
    """
    marks = [position for position, char in enumerate(text) if char in ":=" and position]
    if not marks or Path(text).is_file():
        return "", ArrayFile(path=Path(text))
    there = [mark for mark in marks if Path(text[mark + 1 :]).is_file()]
    mark = (there or marks[-1:])[0]
    return text[:mark], ArrayFile(path=Path(text[mark + 1 :]))


def _named(name: str, names: Sequence[str]) -> str | None:
    """Return the input a file name stands for, None for none or several."""
    if name in names:
        return name
    found = [known for known in names if known.replace("/", "_") == name]
    return found[0] if len(found) == 1 else None


def _as_strings(array: Array) -> Array:
    """Return text as ONNX Runtime takes it safely: of fixed-width bytes it reads past the end."""
    return (np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array).astype(object)


def _type_name(dtype: np.dtype[Any]) -> str:
    return "str" if dtype.kind == "O" else str(dtype)


def _folder_set(folder: Path, option: str) -> InputSet:
    files = {file.stem: ArrayFile(path=file) for file in sorted(folder.glob("[!.]*.npy"))}
    if not files:
        raise OptionError(f"{option} {folder}", "no arrays there", expected=_LAYOUT)
    return InputSet(place=f"{option} {folder}", files=files)


def _archive_set(file: Path, option: str) -> InputSet:
    where = f"{option} {file}"
    try:
        with zipfile.ZipFile(file) as archive:
            members = [name.removesuffix(".npy") for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile) as error:
        raise OptionError(where, f"not an .npz file: {error}", expected=_LAYOUT) from error
    if not members:
        raise OptionError(where, "holds no array", expected=_LAYOUT)
    return InputSet(
        place=where, files={name: ArrayFile(path=file, member=name) for name in members}
    )


def _saved(name: str, value: Any, file: Path) -> ArrayFile:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise OptionError(f"input {name}", f"no array: {error}") from error
    if array.dtype == object and all(isinstance(item, str) for item in array.flat):
        array = array.astype(str)
    if array.dtype.kind not in "biufUS" and array.dtype != BFLOAT16:
        raise OptionError(f"input {name}", "no array ONNX Runtime takes", got=array.dtype)
    try:
        np.save(file, array, allow_pickle=False)
    except OSError as error:
        raise OutputError(str(file), f"cannot be written: {error.strerror or error}") from error
    return ArrayFile(path=file)


def specs_of_proto(proto: onnx.ModelProto) -> list[InputSpec]:
    """Return the inputs of a model file as its session will show them."""
    from onnx import TensorProto

    weights = {tensor.name for tensor in proto.graph.initializer}
    return [
        InputSpec(
            name=value.name,
            type=f"tensor({TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()})",
            shape=tuple(
                dim.dim_value if dim.HasField("dim_value") else None
                for dim in value.type.tensor_type.shape.dim
            ),
        )
        for value in proto.graph.input
        if value.name not in weights  # a value for those is no must
    ]
