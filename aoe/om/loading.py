"""Runs a tuned model in Python: checks that it fits this machine, else runs its untuned form."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoe.device.registry import device_of
from aoe.errors import AoeError, OfflineModelError, OptionError
from aoe.execute.messages import ModelPart
from aoe.folders.locks import FileLock
from aoe.folders.scratch import ScratchFolder
from aoe.om.cache import take_parts
from aoe.om.file import FALLBACK, LIBRARY, MODEL, WEIGHTS, Manifest, read_manifest, unpack_part
from aoe.settings import cache_limit, cache_path, environment
from aoe.target import unmet_cores

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime as ort


class FallbackWarning(UserWarning):
    """The untuned model is run, because the tuned one does not fit this machine."""


class OfflineModel:
    """A loaded `.om`, with the `run` of `onnxruntime.InferenceSession`.

    Attributes:
        manifest: What the file says about itself.
        session: The ONNX Runtime session behind it.
        fallback_reason: Why the untuned model is run, or the empty string.
    """

    def __init__(
        self, manifest: Manifest, session: ort.InferenceSession, fallback_reason: str
    ) -> None:
        self.manifest = manifest
        self.session = session
        self.fallback_reason = fallback_reason

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, np.ndarray[Any, Any]],
        run_options: Any = None,
    ) -> list[Any]:
        """Compute the outputs, as `onnxruntime.InferenceSession.run` does."""
        return list(self.session.run(output_names, dict(input_feed), run_options))

    def get_inputs(self) -> Sequence[Any]:
        """Return the model's inputs, as onnxruntime describes them."""
        return list(self.session.get_inputs())

    def get_outputs(self) -> Sequence[Any]:
        """Return the model's outputs, as onnxruntime describes them."""
        return list(self.session.get_outputs())


def load(file: str | Path, *, threads: int | None = None) -> OfflineModel:
    """Load a tuned model; warn and load its untuned form where the kernels do not fit.

    Args:
        file: An `.om` file.
        threads: Intra-op threads, at most the cores there are; default is what it was tuned for.

    Raises:
        OptionError: `threads` is less than 1.
        OfflineModelError: the file is not a tuned model, or its untuned model is damaged too.
    """
    if threads is not None and threads < 1:
        raise OptionError("threads", "no number of threads", got=threads, expected="1 or more")
    model, count = open_offline_model(Path(file), threads=threads)
    if unmet := unmet_cores(threads, count):
        warnings.warn(unmet, stacklevel=2)
    if reason := model.fallback_reason:
        warnings.warn(f"{file}: running the untuned model: {reason}", FallbackWarning, stacklevel=2)
    return model


def open_offline_model(
    file: Path,
    *,
    threads: int | None,
    adjust: Callable[[ort.SessionOptions], None] = lambda options: None,
) -> tuple[OfflineModel, int]:
    """Return a tuned model, or its untuned form, and the threads it runs on.

    Args:
        file: An `.om` file.
        threads: As for `load`.
        adjust: Changes the options of its session.

    Raises:
        OfflineModelError: as for `load`.
    """
    with ExitStack() as cleanup:
        parts = _unpacked(file, read_manifest(file), cleanup)
        device = device_of(parts.manifest.soc_version)
        count = min(threads or parts.manifest.core_num, device.describe().core_num)
        session, reason = _session(parts, count, adjust)
        parts.keep_with(session)
    return OfflineModel(parts.manifest, session, reason), count


def tuned_part(directory: Path, manifest: Manifest) -> ModelPart:
    """Return how to run the tuned model of an unpacked `.om`.

    With kernels it runs as it is written; without any it is the imported model, for ONNX
    Runtime to optimise.
    """
    library = directory / LIBRARY
    return ModelPart(
        model=directory / MODEL,
        library=library if manifest.kernels and library.exists() else None,
        optimize=not manifest.kernels,
        precision=manifest.precision,
    )


def _session(
    parts: UnpackedModel, threads: int, adjust: Callable[[ort.SessionOptions], None]
) -> tuple[ort.InferenceSession, str]:
    """Return the session of the tuned model, or of the untuned one and why."""
    from aoe.ort.sessions import session_options

    device = device_of(parts.manifest.soc_version)
    reason = parts.damage or unfit_reason(parts.manifest)
    if not reason:
        try:
            part = tuned_part(parts.directory, parts.manifest)
            options = session_options(threads=threads, optimize=part.optimize, library=part.library)
            adjust(options)
            return device.open_session(part.model, options), ""
        except AoeError as error:
            reason = str(error)
    options = session_options(threads=threads, optimize=True)
    adjust(options)
    return device.open_session(parts.directory / FALLBACK, options), reason


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedModel:
    """An unpacked `.om`.

    Attributes:
        damage: What is wrong with its tuned half, or the empty string.
        use: Keeps the parts in the cache; None where they are not in it.
    """

    manifest: Manifest
    directory: Path
    damage: str = ""
    use: FileLock | None = None

    def keep_with(self, session: ort.InferenceSession) -> None:
        """Keep the parts as long as there is the session: it may be opened again from them."""
        if self.use is not None:
            weakref.finalize(session, self.use.release)


def _unpacked(file: Path, manifest: Manifest, cleanup: ExitStack) -> UnpackedModel:
    """Return the parts of an `.om`: kept in the cache if that can be, else until `cleanup`.

    A session has read or mapped its files once it is created, so they may go then.
    """
    root, limit_bytes = cache_path(environment()), cache_limit(environment())
    if root is not None and limit_bytes:
        try:
            cached = take_parts(file, manifest, root=root / "om", limit_bytes=limit_bytes)
            return UnpackedModel(manifest=manifest, directory=cached.directory, use=cached.use)
        except (OSError, OfflineModelError):
            pass  # no room, no permission, or a damaged part: what is whole of it is used below
    scratch = cleanup.enter_context(ScratchFolder("om"))
    damage = _unpack_parts(file, manifest, scratch)
    return UnpackedModel(manifest=manifest, directory=scratch, damage=damage)


def _unpack_parts(file: Path, manifest: Manifest, directory: Path) -> str:
    """Unpack everything; return what is damaged in the tuned half, or the empty string."""
    damage = ""
    for name in manifest.parts:
        try:
            unpack_part(file, manifest, name, directory)
        except OfflineModelError as error:
            if name in (FALLBACK, WEIGHTS):
                raise
            damage = damage or str(error)
    return damage


def unfit_reason(manifest: Manifest) -> str:
    """Return why this machine cannot run the kernels, or the empty string."""
    if not manifest.kernels:
        return ""
    device = device_of(manifest.soc_version)
    missing = device.missing_features(manifest.cpu_features)
    if missing:
        return f"this CPU lacks {', '.join(missing)}"
    block = device.channel_block()
    if block != manifest.nchwc_block:
        return f"ONNX Runtime blocks {block} channels here, the model {manifest.nchwc_block}"
    return ""
