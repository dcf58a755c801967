"""Runs a tuned model in Python: checks that it fits this machine, else runs its untuned form."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoe.device.registry import device_of
from aoe.errors import AoeError, OfflineModelError
from aoe.execute.messages import ModelPart
from aoe.om.file import FALLBACK, LIBRARY, MODEL, WEIGHTS, Manifest, read_manifest, unpack_part
from aoe.settings import cache_path, environment

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
        threads: Intra-op threads; default is what it was tuned for, at most the cores there are.

    Raises:
        OfflineModelError: the file is not a tuned model, or its untuned model is damaged too.
    """
    from aoe.ort.sessions import session_options

    path = Path(file)
    with _unpacked(path) as parts:
        device = device_of(parts.manifest.soc_version)
        count = threads or min(parts.manifest.core_num, device.describe().core_num)
        reason = parts.damage or unfit_reason(parts.manifest)
        if not reason:
            try:
                session = _tuned_session(parts, count)
                return OfflineModel(parts.manifest, session, "")
            except AoeError as error:
                reason = str(error)
        warnings.warn(f"{path}: running the untuned model: {reason}", FallbackWarning, stacklevel=2)
        options = session_options(threads=count, optimize=True)
        session = device.open_session(parts.directory / FALLBACK, options)
        return OfflineModel(parts.manifest, session, reason)


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
    )


def _tuned_session(parts: UnpackedModel, threads: int) -> ort.InferenceSession:
    from aoe.ort.sessions import session_options

    part = tuned_part(parts.directory, parts.manifest)
    options = session_options(threads=threads, optimize=part.optimize, library=part.library)
    return device_of(parts.manifest.soc_version).open_session(part.model, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedModel:
    """An unpacked `.om`; `damage` says what is wrong with its tuned half."""

    manifest: Manifest
    directory: Path
    damage: str


@contextmanager
def _unpacked(file: Path) -> Iterator[UnpackedModel]:
    """Yield the parts of an `.om`: kept in the cache if that can be, else gone afterwards.

    A session has read or mapped its files once it is created, so they may go then.
    """
    manifest = read_manifest(file)
    home = _home(manifest)
    if home is not None and all((home / name).exists() for name in manifest.parts):
        yield UnpackedModel(manifest=manifest, directory=home, damage="")
        return
    scratch = Path(tempfile.mkdtemp(prefix="aoe_om_", dir=_writable(home)))
    try:
        damage = _unpack_parts(file, manifest, scratch)
        kept = home is not None and not damage and _moved(scratch, home)
        directory = home if home is not None and kept else scratch
        yield UnpackedModel(manifest=manifest, directory=directory, damage=damage)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _home(manifest: Manifest) -> Path | None:
    """Return where the parts are cached, named by their contents; None without a cache."""
    digest = hashlib.sha256(json.dumps(dict(manifest.parts), sort_keys=True).encode()).hexdigest()
    root = cache_path(environment())
    return root / "om" / digest[:32] if root else None


def _moved(scratch: Path, home: Path) -> bool:
    """Move unpacked parts into the cache; return False if they have to stay where they are."""
    try:
        scratch.replace(home)
    except OSError:  # not there to be written, or another process was first
        return all((home / part.name).exists() for part in scratch.iterdir())
    return True


def _writable(home: Path | None) -> Path | None:
    if home is None:
        return None
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return home.parent if os.access(home.parent, os.W_OK) else None


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
