"""What is in a tuned model: its kernels, and its subgraphs in another form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.workload import shapes_text

if TYPE_CHECKING:
    from aoe.om.file import Manifest
    from aoebank import AoebankError, Text

_SUBGRAPHS = ("subgraph", "places", "ends at", "form")
_KERNELS = ("kernel", "places", "ends at", "precision")


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModelReport:
    """What an `.om` file says about itself.

    Attributes:
        file: The tuned model.
        manifest: What it says.
        html: The page that is written with it.
        is_dry_run: True if nothing is written.
    """

    file: Path
    manifest: Manifest
    html: Path | None = None
    is_dry_run: bool = False
    schema: str = "aoe.inspect_om/1"
    error: AoebankError | None = None
    exit_code: int = 0

    def document(self) -> Mapping[str, object]:
        """Return the manifest."""
        is_written = self.html is not None and not self.is_dry_run
        return {
            "om": str(self.file),
            "html": str(self.html) if is_written else None,
            "manifest": asdict(self.manifest),
        }

    def write(self, text: Text) -> None:
        """Write what it was tuned for, its subgraphs and its kernels."""
        from aoe.om.cases import case_manifest

        manifest = self.manifest
        versions = ", ".join(f"{name} {number}" for name, number in manifest.versions.items())
        text.line(f"{self.file}: {manifest.name}, tuned for {manifest.soc_version}")
        text.line(f"{threads_text(manifest)}, {manifest.precision.value}, {versions}")
        for number, case in enumerate(manifest.cases):
            _write_tuned(text, case_manifest(manifest, number), shapes_text(case.shapes))
        if manifest.cases:
            text.line("any other shape: the imported model as it is")
        else:
            _write_tuned(text, manifest)
        if self.html is not None:
            text.line(f"{'would write' if self.is_dry_run else 'wrote'} {self.html}")


def threads_text(manifest: Manifest) -> str:
    """Return what threads a model was tuned for, in words."""
    if manifest.streams > 1:
        return f"throughput of {manifest.streams} streams of one thread"
    return f"{manifest.core_num} threads"


def _write_tuned(text: Text, manifest: Manifest, shapes: str = "") -> None:
    if shapes:
        text.line((shapes, "bold"))
    if manifest.subgraphs:
        rows = [
            (use.graph_id, str(len(use.op_names)), _first(use.op_names), use.strategy)
            for use in manifest.subgraphs
        ]
        text.line(f"{_counted(len(rows), 'subgraph')} in another form:")
        text.table(_SUBGRAPHS, rows, "nrn-")
    if manifest.kernels:
        kernels = [
            (use.name, str(len(use.op_names)), _first(use.op_names), use.precision.value)
            for use in manifest.kernels
        ]
        text.line(f"{_counted(len(kernels), 'kernel')}:")
        text.table(_KERNELS, kernels, "nrn-")
    if not manifest.subgraphs and not manifest.kernels:
        text.line("the imported model as it is: nothing faster was found")


def _first(names: tuple[str, ...]) -> str:
    return names[0] if names else "-"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
