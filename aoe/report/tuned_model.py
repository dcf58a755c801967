"""Report on a tuned model: its kernels, and its subgraphs in another form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.report.quantities import time_text, versions_text
from aoe.report.written import ReportWithFiles
from aoe.workload import shapes_text
from aoebank import Report, members, plural

if TYPE_CHECKING:
    from aoe.om.file import KernelUse, Manifest, SubgraphUse
    from aoe.om.loading import OfflineModel
    from aoe.online.session import InferenceSession
    from aoe.profiling.comparing import ComparedProfiles
    from aoebank import Column, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModelReport(ReportWithFiles):
    """Manifest of an `.om` file, and the page that is written with it."""

    file: Path  # The tuned model
    manifest: Manifest  # What it says
    # Where its time went before tuning and goes now; None if that was not asked.
    compared: ComparedProfiles | None = None
    is_signed: bool = False  # True if it has a signature, by whomever
    signer: str = ""  # Who signed it; empty if that was not checked
    schema: str = "aoe.inspect_om/1"

    def document(self) -> Mapping[str, object]:
        from aoe.report.profiles import comparison_members

        return {
            "om": str(self.file),
            "html": self.page,
            **members(self, "signed=is_signed signer"),
            "manifest": asdict(self.manifest),
            "times": None if self.compared is None else comparison_members(self.compared),
        }

    def write(self, text: Text) -> None:
        manifest = self.manifest
        _write_head(text, manifest, f"{self.file}: ")
        if self.is_signed:
            by = (
                f" by {self.signer}"
                if self.signer
                else ", by whom tells --require_signature=SIGNERS"
            )
            text.line(f"signed{by}")
        _write_shapes(text, manifest)
        if self.compared is not None:
            _write_times(text, self.compared)
        self.write_files(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModelReport(Report):
    """A tuned model that is loaded in this process."""

    result: OfflineModel
    schema: str = "aoe.loaded_om/1"

    def document(self) -> Mapping[str, object]:
        """Return a row for each kernel and each subgraph in another form, by shape."""
        from aoe.om.cases import case_manifest

        manifest = self.result.manifest
        cases = [case_manifest(manifest, number) for number in range(len(manifest.cases))]
        shapes = [shapes_text(case.shapes) for case in manifest.cases]
        rows = [
            {"input_shape": shape, **row}
            for case, shape in zip(cases or [manifest], shapes or [""], strict=True)
            for row in (
                *(
                    members(use, "kind=op_type name key bank_file op_names precision")
                    for use in case.kernels
                ),
                *(
                    members(use, "kind=strategy name=graph_id bank_file op_names")
                    for use in case.subgraphs
                ),
            )
        ]
        return {"fallback_reason": self.result.fallback_reason, "uses": rows}

    def write(self, text: Text) -> None:
        """Write what computes the model, or why the untuned one does."""
        manifest = self.result.manifest
        _write_head(text, manifest)
        if self.result.fallback_reason:
            text.line(("running the untuned model: ", "yellow"), self.result.fallback_reason)
            return
        _write_shapes(text, manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSessionReport(Report):
    """A session that takes what the bank has, and the shapes it was called with."""

    result: InferenceSession
    schema: str = "aoe.served_session/1"

    def document(self) -> Mapping[str, object]:
        """Return a row for each form of calls."""
        rows = [
            members(form, "stage kernels written_as speedup problem")
            | {"input_shape": shapes_text(form.shapes)}
            for form in self.result.forms
        ]
        return {"fallback_reason": self.result.fallback_reason, "forms": rows}

    def write(self, text: Text) -> None:
        """Write who computes calls of each form."""
        session = self.result
        if session.fallback_reason:
            text.line(("running the untuned model: ", "yellow"), session.fallback_reason)
        elif not session.forms:
            text.line("a session of ONNX Runtime; not called with any shape yet")
        else:
            text.columns(
                session.forms,
                ("shapes", "n", lambda form: shapes_text(form.shapes)),
                ("stage", "-", lambda form: form.stage.value),
                ("kernels", "r", lambda form: str(form.kernels)),
                ("speed-up", "r", lambda form: f"{form.speedup:.2f}x"),
                ("problem", "-", lambda form: form.problem or "-"),
            )


def threads_text(manifest: Manifest) -> str:
    """Return the number of threads a model was tuned for, in words."""
    if manifest.streams > 1:
        return f"throughput of {manifest.streams} streams of one thread"
    return plural(manifest.core_num, "thread")


_PLACES: tuple[Column[KernelUse | SubgraphUse], ...] = (
    ("places", "r", lambda use: str(len(use.op_names))),
    ("ends at", "n", lambda use: use.op_names[0] if use.op_names else "-"),
)


def _write_head(text: Text, manifest: Manifest, where: str = "") -> None:
    text.line(f"{where}{manifest.name}, tuned for {manifest.soc_version}")
    versions = versions_text(manifest.versions)
    text.line(f"{threads_text(manifest)}, {manifest.precision.value}, {versions}")


def _write_shapes(text: Text, manifest: Manifest) -> None:
    """Write what computes a model, for each of its shapes."""
    from aoe.om.cases import case_manifest

    for number, case in enumerate(manifest.cases):
        _write_tuned(text, case_manifest(manifest, number), shapes_text(case.shapes))
    if manifest.cases:
        text.line("any other shape: the imported model as it is")
    else:
        _write_tuned(text, manifest, manifest.shape_range)


def _write_tuned(text: Text, manifest: Manifest, shapes: str = "") -> None:
    if shapes:
        text.line((shapes, "bold"))
    if manifest.written_as:
        text.line(manifest.written_as)
    if manifest.subgraphs:
        text.line(f"{plural(len(manifest.subgraphs), 'subgraph')} in another form:")
        text.columns(
            manifest.subgraphs,
            ("subgraph", "n", lambda use: use.graph_id),
            *_PLACES,
            ("form", "-", lambda use: use.strategy),
        )
    if manifest.kernels:
        text.line(f"{plural(len(manifest.kernels), 'kernel')}:")
        text.columns(
            manifest.kernels,
            ("kernel", "n", lambda use: use.name),
            *_PLACES,
            ("precision", "-", lambda use: use.precision.value),
        )
    if not (manifest.subgraphs or manifest.kernels or manifest.written_as):
        text.line("the imported model as it is: nothing faster was found")


def _write_times(text: Text, compared: ComparedProfiles) -> None:
    from aoe.report.profiles import write_operators

    before, now = (time_text(side.model_us) for side in (compared.before, compared.after))
    text.line(f"where the time goes now, {now} a run; untuned {before}:")
    write_operators(text, sorted(compared.operators, key=lambda one: -one.after_us))
