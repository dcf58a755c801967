"""Subject of a profile: a model of any framework as ONNX Runtime runs it here, or a tuned one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from aoe.device.protocol import Device
from aoe.device.registry import default_device, device_of
from aoe.entry.protocol import ModelSource
from aoe.entry.registry import find_entry
from aoe.entry.tuned_model import check_shapes
from aoe.errors import RunError
from aoe.graph.model_graph import ModelGraph
from aoe.graph.origins import Origins
from aoe.graph.rewrite import InlinedModel, inline_kernels
from aoe.om.cases import asked_case, take_out
from aoe.om.file import FALLBACK, MODEL, Manifest, unpack
from aoe.om.graphs import load_part
from aoe.om.loading import check_operators, tuned_part, unfit_reason
from aoe.ort.inputs import ModelInputs
from aoe.ort.sessions import bound_run, session_options, session_source
from aoe.ort.static_shapes import infer_tensors

OM_SUFFIX = ".om"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSubject:
    """A model that is ready to run."""

    device: Device  # What it runs on
    imported: onnx.ModelProto  # The user's model
    running: onnx.ModelProto  # The graph that runs, kernels as nodes
    model: onnx.ModelProto | Path  # The same for a session: a file where weights lie beside it
    library: Path | None  # Kernel library of a tuned model
    inlined: InlinedModel  # The graph with kernels spelled out
    graph: ModelGraph  # The same, shapes and layouts at hand
    origins: Origins  # Which nodes of `imported` its nodes compute
    core_num: int | None = None  # Threads it was tuned for; None for a model that is not

    def bound_run(self, inputs: ModelInputs, *, threads: int) -> Callable[[], object]:
        """Return a function that computes the model once, without a profiler.

        Raises:
            RunError: it cannot be run on these inputs.
        """
        options = session_options(threads=threads, optimize=False, library=self.library)
        source = self.model if isinstance(self.model, Path) else session_source(self.model, options)
        session = self.device.open_session(source, options)
        return bound_run(session, inputs.first(session))


def open_subject(
    source: ModelSource,
    framework: int | None,
    scratch: Path,
    *,
    threads: int | None,
    operators: Sequence[Path] = (),
    trusted: Path | None = None,
    on_event: Callable[[str], None] = lambda text: None,
) -> ProfileSubject:
    """Import a model and let ONNX Runtime optimise it, or unpack an `.om`.

    Args:
        source: The file.
        framework: AOE's number; it does not matter for an `.om`.
        scratch: Empty folder that outlives the subject.
        threads: Of the runs.
        operators: Libraries of operators ONNX Runtime does not have.
        trusted: File of allowed signers, one of whom has to have signed an `.om`.
        on_event: Is told what is odd about libraries of operators, before they are run.

    Raises:
        AoeError: it cannot be read, or not be run on this machine.
    """
    if source.path.suffix == OM_SUFFIX:
        manifest = unpack(source.path, scratch, trusted)
        for caveat in check_operators(source.path, manifest, operators):
            on_event(caveat)
        return _open_tuned(source, manifest, scratch, threads, operators)
    imported = find_entry(framework, source).load(source).proto
    device = default_device().with_operators(operators)
    return _optimized(device, imported, imported, scratch, threads)


def _open_tuned(
    source: ModelSource,
    manifest: Manifest,
    scratch: Path,
    threads: int | None,
    operators: Sequence[Path],
) -> ProfileSubject:
    file = source.path
    if manifest.cases:
        manifest = take_out(scratch, manifest, asked_case(file, manifest, source.shapes))
    else:
        check_shapes(scratch, source.shapes, source.given)
    reason = unfit_reason(manifest)
    if reason:
        raise RunError(str(file), f"its kernels do not fit this machine: {reason}")
    device = device_of(manifest.soc_version).with_operators(operators)
    imported = load_part(file, scratch / FALLBACK)
    part = tuned_part(scratch, manifest)
    if part.optimize:
        return _optimized(
            device, imported, load_part(file, scratch / MODEL), scratch, threads, manifest
        )
    return _subject(
        device,
        imported,
        load_part(file, part.model),
        model=part.model,
        library=part.library,
        manifest=manifest,
    )


def _optimized(
    device: Device,
    imported: onnx.ModelProto,
    proto: onnx.ModelProto,
    scratch: Path,
    threads: int | None,
    manifest: Manifest | None = None,
) -> ProfileSubject:
    file = scratch / "optimized.onnx"
    running = device.optimize(proto, file, threads=device.describe(threads).core_num)
    file.unlink(missing_ok=True)
    return _subject(device, imported, running, model=running, library=None, manifest=manifest)


def _subject(
    device: Device,
    imported: onnx.ModelProto,
    running: onnx.ModelProto,
    *,
    model: onnx.ModelProto | Path,
    library: Path | None,
    manifest: Manifest | None,
) -> ProfileSubject:
    inlined = inline_kernels(running)
    tensors = infer_tensors(inlined.proto, device.open_session)
    return ProfileSubject(
        device=device,
        imported=imported,
        running=running,
        model=model,
        library=library,
        inlined=inlined,
        graph=ModelGraph(inlined.proto, tensors, block=device.channel_block()),
        origins=Origins(imported, inlined.proto),
        core_num=manifest.core_num if manifest is not None else None,
    )
