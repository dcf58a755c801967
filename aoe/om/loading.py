"""Runs a tuned model in Python: checks that it fits this machine, else runs its untuned form."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from aoe.device.registry import device_of
from aoe.errors import AoeError, FallbackWarning, OfflineModelError, OptionError
from aoe.execute.messages import ModelPart
from aoe.folders.locks import FileLock
from aoe.folders.ownership import UnsafeFolderError
from aoe.folders.scratch import ScratchFolder
from aoe.graph.extents import NamedExtents
from aoe.graph.weights import stay_outside
from aoe.om.cache import PART_STEPS, PartSteps, take_parts
from aoe.om.cases import case_manifest, cases_text, find_case
from aoe.om.file import (
    FALLBACK,
    LIBRARY,
    MODEL,
    WEIGHTS,
    Manifest,
    case_parts,
    digest_of,
    read_manifest,
)
from aoe.ort.bfloat16 import needs_values, run_on_values
from aoe.settings import cache_limit, cache_path, environment, parse_whole
from aoe.target import unmet_cores
from aoe.workload import shapes_text
from aoebank import RichDisplay

if TYPE_CHECKING:
    import onnxruntime as ort

    from aoe.device.protocol import Device


OperatorFiles = str | Path | Sequence[str | Path]


class OfflineModel(RichDisplay):
    """A loaded `.om`, with the `run` of `onnxruntime.InferenceSession`.

    One with several shapes opens a session for each of them when it is run on that shape first.

    Attributes:
        manifest: What the file says about itself.
        fallback_reason: Why the untuned model is run, or the empty string; of a file with several
            shapes, why it is for all of them.
    """

    shown_by = "aoe.report.tuned_model:LoadedModelReport"
    rows_in = "uses"

    def __init__(self, manifest: Manifest, sessions: Sessions, fallback_reason: str) -> None:
        self.manifest = manifest
        self.fallback_reason = fallback_reason
        self._sessions = sessions

    @property
    def session(self) -> ort.InferenceSession:
        """The ONNX Runtime session behind it; of several shapes, the one that takes all others."""
        return self._sessions.main

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, np.ndarray[Any, Any] | ort.OrtValue],
        run_options: Any = None,
    ) -> list[Any]:
        """Compute the outputs, as `onnxruntime.InferenceSession.run` does."""
        session = self.session_for({name: _shape_of(value) for name, value in input_feed.items()})
        if needs_values(session):
            return run_on_values(session, output_names, dict(input_feed), run_options)
        return list(session.run(output_names, dict(input_feed), run_options))

    def session_for(self, shapes: Mapping[str, tuple[int, ...]]) -> ort.InferenceSession:
        """Return the session that computes inputs of the given shapes, warning of untuned shapes.

        Args:
            shapes: By input name.
        """
        return self._sessions.find(shapes) or self.session

    @property
    def example_session(self) -> ort.InferenceSession:
        """A session whose shapes are known: inputs can be made up for it."""
        cases = self.manifest.cases
        return self.session_for(cases[0].shapes) if cases else self.session

    def get_inputs(self) -> Sequence[Any]:
        """Return the model's inputs, as onnxruntime describes them."""
        return list(self.session.get_inputs())

    def get_outputs(self) -> Sequence[Any]:
        """Return the model's outputs, as onnxruntime describes them."""
        return list(self.session.get_outputs())


def _shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of an array or of an `OrtValue`, of which it is a method.

    A sequence of tensors has none.
    """
    shape = getattr(value, "shape", None)
    if callable(shape):
        return tuple(shape()) if value.is_tensor() else ()
    try:
        return np.shape(value)
    except ValueError:  # tensors of several shapes
        return ()


def load(
    file: str | Path,
    *,
    threads: int | None = None,
    custom_ops_library: OperatorFiles = (),
    trusted_keys: str | Path | None = None,
) -> OfflineModel:
    """Load a tuned model; warn and load its untuned form where the kernels do not fit.

    This runs the native code in the file: load none whose maker you do not trust, or give
    `trusted_keys`.

    Args:
        file: An `.om` file.
        threads: Intra-op threads, at most the cores there are; default is what it was tuned for.
        custom_ops_library: The library, or libraries, with operators ONNX Runtime does not have,
            of a model that was tuned with such.
        trusted_keys: File of allowed signers, as ssh-keygen(1) and git have it: a file that none
            of them signed, or in which a bit has changed since, is refused before anything in it
            is run, whatever the cache has.

    Raises:
        OptionError: `threads` is no whole number from 1 on, a library cannot be loaded, or the
            model needs one and none is given.
        OfflineModelError: the file is not a tuned model, nobody trusted has signed all of it, or
            its untuned model is damaged too.
        AoebankError: there is no such file of signers, or no ssh-keygen.
    """
    if threads is not None:
        threads = parse_whole("threads", threads, least=1)
    file, given = Path(file), operator_paths(custom_ops_library)
    manifest = read_manifest(file, None if trusted_keys is None else Path(trusted_keys))
    for caveat in check_operators(file, manifest, given):
        warnings.warn(caveat, stacklevel=2)  # before anything of the library is run
    model, count = open_offline_model(
        file,
        threads=threads,
        manifest=manifest,
        operators=given,
        is_signed=trusted_keys is not None,
    )
    if unmet := unmet_cores(threads, count):
        warnings.warn(unmet, stacklevel=2)
    if reason := model.fallback_reason:
        warnings.warn(f"{file}: running the untuned model: {reason}", FallbackWarning, stacklevel=2)
    return model


def operator_paths(given: OperatorFiles) -> tuple[Path, ...]:
    """Return libraries of operators that were given one by one or together."""
    return tuple(map(Path, [given] if isinstance(given, str | Path) else given))


def open_offline_model(
    file: Path,
    *,
    threads: int | None,
    manifest: Manifest | None = None,
    operators: Sequence[Path] = (),
    is_signed: bool = False,
    adjust: Callable[[ort.SessionOptions], None] = lambda options: None,
    steps: PartSteps = PART_STEPS,
) -> tuple[OfflineModel, int]:
    """Return a tuned model, or its untuned form, and the threads it runs on.

    Args:
        file: An `.om` file.
        threads: As for `load`.
        manifest: Its own, where it was read before: parts of another file are refused.
        operators: Libraries of operators the model needs.
        is_signed: True if a damaged part is an error, since a signature was asked for.
        adjust: Changes the options of its sessions.
        steps: How its parts are unpacked and checked.

    Raises:
        OfflineModelError: as for `load`.
    """
    from aoe.ort.custom_operators import try_operators

    manifest = manifest or read_manifest(file)
    check_operators(file, manifest, operators)
    with ExitStack() as cleanup:
        try_operators(operators)
        parts = _unpacked(file, manifest, cleanup, steps)
        if is_signed and parts.damage:  # the file was another one when it was checked
            raise OfflineModelError(str(file), f"changed while it was read: {parts.damage}")
        device = device_of(manifest.soc_version).with_operators(operators)
        count = min(threads or parts.manifest.core_num, device.describe().core_num)
        open_part = partial(_open_part, device, count, adjust)
        if parts.manifest.cases:
            sessions: Sessions = _CaseSessions(file, parts, open_part, cleanup.pop_all())
            reason = parts.damage or unfit_reason(parts.manifest)
        else:
            session, reason = _session(parts, open_part)
            parts.keep_with(session)
            names = NamedExtents({one.name: one.shape for one in session.get_inputs()})
            if parts.manifest.shape_range and names and not reason:
                sessions = _RangeSessions(
                    session,
                    names,
                    file,
                    partial(open_part, _untuned_part(parts)),
                    cleanup.pop_all(),
                )
            else:
                sessions = OneSession(session)
    return OfflineModel(parts.manifest, sessions, reason), count


def check_operators(file: Path, manifest: Manifest, given: Sequence[Path]) -> tuple[str, ...]:
    """Refuse a model that needs operators of other libraries where none is given.

    Returns:
        A warning for each library it was not tuned with.

    Raises:
        OptionError: none is given.
    """
    if manifest.operators and not given:
        needed = ", ".join(library.path for library in manifest.operators)
        raise OptionError(
            "custom_ops_library",
            f"{file} needs operators of another library",
            expected=needed,
            hint="give the file: --custom_ops_library=FILE.so, aoe.load(..., custom_ops_library=)",
        )
    known = {library.sha256 for library in manifest.operators}
    return tuple(
        f"{file}: it was tuned with another library of operators than {library}"
        for library in given
        if known and library.is_file() and digest_of(library) not in known
    )


OpenPart = Callable[[ModelPart], "ort.InferenceSession"]


class Sessions(Protocol):
    """Sessions of a loaded model."""

    @property
    def main(self) -> ort.InferenceSession:
        """The session that takes every shape the model does."""
        ...

    def find(self, shapes: Mapping[str, tuple[int, ...]]) -> ort.InferenceSession | None:
        """Return the session for exactly the given shapes, None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class OneSession:
    """A model that has one session."""

    main: ort.InferenceSession

    def find(self, _: object) -> None:
        """Return None: there is one for all."""


class _RangeSessions:
    """Sessions of a model tuned for a range: the untuned one is opened when it is needed first.

    Kernels rely on the names of dimensions. A call in which they disagree, such as a mask of one
    row for a batch, is one that ONNX Runtime broadcasts.
    """

    def __init__(
        self,
        main: ort.InferenceSession,
        names: NamedExtents,
        file: Path,
        open_untuned: Callable[[], ort.InferenceSession],
        folder: ExitStack,
    ) -> None:
        self.main = main
        self._names = names
        self._file = file
        self._open_untuned = open_untuned
        self._lock = threading.Lock()
        self._untuned: ort.InferenceSession | None = None
        weakref.finalize(self, folder.close)

    def find(self, shapes: Mapping[str, tuple[int, ...]]) -> ort.InferenceSession | None:
        if self._names.agree(shapes):
            return None
        with self._lock:
            if self._untuned is None:
                self._untuned = self._open_untuned()
                text = (
                    f"{self._file}: running the untuned model for {shapes_text(shapes)}: "
                    "dimensions of one name in the model have several extents"
                )
                warnings.warn(text, FallbackWarning, stacklevel=4)
            return self._untuned


class _CaseSessions:
    """Sessions of a file with several shapes, each opened when it is needed first."""

    def __init__(
        self, file: Path, parts: UnpackedModel, open_part: OpenPart, folder: ExitStack
    ) -> None:
        self._file = file
        self._parts = parts
        self._open_part = open_part
        self._lock = threading.Lock()
        self._open: dict[int | None, ort.InferenceSession] = {}
        self._untuned: set[object] = set()
        weakref.finalize(self, folder.close)
        if parts.use is not None:
            weakref.finalize(self, parts.use.release)

    @property
    def main(self) -> ort.InferenceSession:
        with self._lock:
            if None not in self._open:
                self._open[None] = self._open_part(_untuned_part(self._parts))
            return self._open[None]

    def find(self, shapes: Mapping[str, tuple[int, ...]]) -> ort.InferenceSession | None:
        manifest = self._parts.manifest
        if self._parts.damage or unfit_reason(manifest):
            return None  # which was said when it was loaded
        number = find_case(manifest, shapes)
        if number is None:
            self._on_event(shapes_text(shapes), f"tuned are {cases_text(manifest)}")
            return None
        with self._lock:
            if number not in self._open and number not in self._untuned:
                try:
                    self._open[number] = self._case_session(number)
                except AoeError as error:
                    self._on_event(number, str(error))
            return self._open.get(number)

    def _case_session(self, number: int) -> ort.InferenceSession:
        return self._open_part(case_part(self._parts.directory, self._parts.manifest, number))

    def _on_event(self, what: object, reason: str) -> None:
        """Warn of what runs untuned, once for everything."""
        if what not in self._untuned:
            self._untuned.add(what)
            text = f"{self._file}: running the untuned model for {what}: {reason}"
            warnings.warn(text, FallbackWarning, stacklevel=5)


def tuned_part(directory: Path, manifest: Manifest) -> ModelPart:
    """Return model and libraries that run the tuned model of an unpacked `.om`.

    With kernels it runs as it is written; without any it is the imported model, for ONNX
    Runtime to optimise.
    """
    return _named_part(directory, manifest, MODEL, LIBRARY)


def case_part(directory: Path, manifest: Manifest, number: int) -> ModelPart:
    """Return model and libraries that run one case of an unpacked `.om` with several shapes."""
    return _named_part(directory, case_manifest(manifest, number), *case_parts(number))


def _named_part(directory: Path, manifest: Manifest, model: str, library: str) -> ModelPart:
    kernels = directory / library
    return ModelPart(
        model=directory / model,
        library=kernels if manifest.kernels and kernels.exists() else None,
        optimize=not manifest.kernels,
        precision=manifest.precision,
        is_large=weights_are_large(directory),
    )


def weights_are_large(directory: Path) -> bool:
    """True if there is to be memory for one model of an unpacked `.om` only."""
    weights = directory / WEIGHTS
    return weights.exists() and stay_outside(weights.stat().st_size)


def _session(parts: UnpackedModel, open_part: OpenPart) -> tuple[ort.InferenceSession, str]:
    """Return the session of the tuned model, or of the untuned one and why."""
    reason = parts.damage or unfit_reason(parts.manifest)
    if not reason:
        try:
            return open_part(tuned_part(parts.directory, parts.manifest)), ""
        except AoeError as error:
            reason = str(error)
    return open_part(_untuned_part(parts)), reason


def _untuned_part(parts: UnpackedModel) -> ModelPart:
    return ModelPart(model=parts.directory / FALLBACK, optimize=True)


def _open_part(
    device: Device,
    threads: int,
    adjust: Callable[[ort.SessionOptions], None],
    part: ModelPart,
) -> ort.InferenceSession:
    from aoe.ort.sessions import session_options

    options = session_options(threads=threads, optimize=part.optimize, library=part.library)
    adjust(options)
    return device.open_session(part.model, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedModel:
    """An unpacked `.om`."""

    manifest: Manifest
    directory: Path
    damage: str = ""  # What is wrong with its tuned half, or the empty string
    use: FileLock | None = None  # Keeps the parts in the cache; None where they are not in it

    def keep_with(self, session: ort.InferenceSession) -> None:
        """Keep the parts as long as there is the session: it may be opened again from them."""
        if self.use is not None:
            weakref.finalize(session, self.use.release)


def _unpacked(
    file: Path, manifest: Manifest, cleanup: ExitStack, steps: PartSteps
) -> UnpackedModel:
    """Return the parts of an `.om`: kept in the cache if that can be, else until `cleanup`.

    A session has read or mapped its files once it is created, so they may go then.
    """
    root, limit_bytes = cache_path(environment()), cache_limit(environment())
    if root is not None and limit_bytes:
        try:
            cached = take_parts(
                file, manifest, root=root / "om", limit_bytes=limit_bytes, steps=steps
            )
            return UnpackedModel(manifest=manifest, directory=cached.directory, use=cached.use)
        except UnsafeFolderError as error:
            text = f"{file}: not kept unpacked in {root}: {error.strerror}"
            warnings.warn(f"{text}; chmod go-w, or name another XDG_CACHE_HOME", stacklevel=4)
        except (OSError, OfflineModelError):
            pass  # no room, no permission, or a damaged part: what is whole of it is used below
    scratch = cleanup.enter_context(ScratchFolder("om"))
    damage = _unpack_parts(file, manifest, scratch, steps)
    return UnpackedModel(manifest=manifest, directory=scratch, damage=damage)


def _unpack_parts(file: Path, manifest: Manifest, directory: Path, steps: PartSteps) -> str:
    """Unpack everything; return what is damaged in the tuned half, or the empty string."""
    damage = ""
    for name in manifest.parts:
        try:
            steps.unpack(file, manifest, name, directory)
        except OfflineModelError as error:
            if name in (FALLBACK, WEIGHTS):
                raise
            damage = damage or str(error)
    return damage


def unfit_reason(manifest: Manifest) -> str:
    """Return why this machine cannot run the kernels, or the empty string."""
    if not manifest.kernel_count:
        return ""
    device = device_of(manifest.soc_version)
    missing = device.missing_features(manifest.cpu_features)
    if missing:
        return f"this CPU lacks {', '.join(missing)}"
    block = device.channel_block()
    if block != manifest.nchwc_block:
        return f"ONNX Runtime blocks {block} channels here, the model {manifest.nchwc_block}"
    return ""
