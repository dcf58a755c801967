"""Tell what was converted, packed and unpacked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aoebank.errors import UsageError
from aoebank.report.output import Report, Text, members, plural, size_text
from aoebank.shipping.convert import ConvertResult
from aoebank.shipping.pack import PackResult, UnpackResult
from aoebank.storage.packs.archive import PackManifest, manifest_document


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport(Report):
    """A line: how much of what is where now."""

    result: ConvertResult
    schema: str = "aoebank.convert/1"

    def document(self) -> Mapping[str, object]:
        return {
            **members(self.result, "source output files records"),
            "left_out": dict(self.result.left_out),
        }

    def write(self, text: Text) -> None:
        result = self.result
        text.line(
            f"{result.source} -> {result.output}: {plural(result.records, 'record')} in "
            f"{plural(result.files, 'file')}"
        )
        if result.left_out:
            states = ", ".join(f"{number} {state}" for state, number in result.left_out.items())
            text.line(f"trials without a result, left out: {states}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackReport(Report):
    """A pack that was written."""

    result: PackResult
    schema: str = "aoebank.pack/1"

    def document(self) -> Mapping[str, object]:
        result = self.result
        return {
            **members(result, "pack size_bytes sha256"),
            "signed": result.is_signed,
            **manifest_document(result.manifest),
            "records": result.manifest.records,
        }

    def write(self, text: Text) -> None:
        _write_files(self.result.manifest, text)
        signed = ", signed" if self.result.is_signed else ""
        text.line(f"{self.result.pack}: {size_text(self.result.size_bytes)}{signed}")
        text.line(f"sha256 {self.result.sha256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackReport(Report):
    """A pack that was opened, and found to be what it says."""

    result: UnpackResult
    schema: str = "aoebank.unpack/1"

    def document(self) -> Mapping[str, object]:
        result = self.result
        return {
            "pack": str(result.pack),
            "root": str(result.root) if result.root is not None else None,
            **members(result, "signed=is_signed signer?"),
            **manifest_document(result.manifest),
            "records": result.manifest.records,
        }

    def write(self, text: Text) -> None:
        result, manifest = self.result, self.result.manifest
        _write_files(manifest, text)
        if manifest.message:
            text.line(f"for: {manifest.message}")
        text.line(f"packed from {manifest.source} by {manifest.made_by}")
        if result.signer:
            text.line(f"signed by {result.signer}")
        elif result.is_signed:
            text.line("signed; --allowed-signers FILE tells by whom")
        else:
            text.line("not signed")
        where = f", unpacked into {result.root}" if result.root is not None else ""
        text.line(f"every file is what the manifest says{where}")


def _write_files(manifest: PackManifest, text: Text) -> None:
    rows = [
        (str(file.records) if file.records else "-", size_text(file.size_bytes), file.name)
        for file in manifest.files
    ]
    text.table(("records", "size", "file"), rows, kinds="rrp")
    text.line(
        f"{plural(len(manifest.files), 'file')}, {plural(manifest.records, 'record')} for "
        f"{', '.join(manifest.soc_versions) or 'no target'}"
    )


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> UnpackReport:
    """Return the report on an unpacked bank.

    Raises:
        UsageError: the folder is given twice.
    """
    root, output = given["root"], given["output"]
    if root is not None and output is not None:
        raise UsageError("given twice: DIR and --output", where="unpack", got=f"{root}, {output}")
    return UnpackReport(result=call(root=root if output is None else output))
