"""Raw results: one JSON document of one machine, a record per network and number of threads."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from comparison.files import write_document

SCHEMA = "peers/1"
ENGINE = "engine"
"""Digest of the engine's sources, of a document or of a record."""
_PACKAGES = (
    *("onnxruntime", "openvino", "torch"),
    *("onnx", "onnxscript", "halide", "numpy"),
)
_FLAGS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "bf16")
_ROOT = Path(__file__).resolve().parents[2]

Record = dict[str, Any]


class ResultsError(Exception):
    """The file of results cannot be used for this run."""


def environment() -> dict[str, Any]:
    """Return everything of this machine that a figure depends on; no date."""
    return {
        **_processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        ENGINE: engine_digest(),
    }


def engine_digest(root: Path = _ROOT) -> str:
    """Return a digest of an engine's sources: a figure belongs to the code that made it.

    Args:
        root: Folder of its packages.
    """
    digest = hashlib.sha256()
    for package in ("aoe", "aoebank"):
        for file in sorted((root / package).rglob("*")):
            if file.suffix in {".py", ".c", ".h"}:
                digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:16]


class ResultsFile:
    """The file a run adds to. Made by `open_results`, which holds its lock."""

    def __init__(self, file: Path, here: Mapping[str, Any], *, is_mixed: bool = False) -> None:
        self.file = file
        self._is_mixed = is_mixed
        self._records: list[Record] = []
        if file.exists():
            document = load_results(file)
            there = document["environment"]
            difference = _difference(there, here, is_mixed=is_mixed)
            if document["records"] and difference:
                raise ResultsError(
                    f"{file}: results of another machine or other versions: "
                    f"{difference}\n"
                    "hint: --results with a new file"
                )
            self._records = document["records"]
            if is_mixed:
                own = there.get(ENGINE, "")
                self._records = [{**r, ENGINE: r.get(ENGINE, own)} for r in self._records]
        self._environment = dict(here)

    def find(self, network: str, threads: int) -> Record | None:
        """Return the record of a network, if there is one."""
        wanted = (network, threads)
        return next((r for r in self._records if (r["network"], r["threads"]) == wanted), None)

    def put(self, record: Record) -> None:
        """Add a record, or replace the one of this network and number of threads."""
        mine = (record["network"], record["threads"])
        others = [r for r in self._records if (r["network"], r["threads"]) != mine]
        today = datetime.now(UTC).date().isoformat()
        made_by = {ENGINE: self._environment[ENGINE]} if self._is_mixed else {}
        self._records = [*others, {**record, **made_by, "date": today}]
        document = {
            "schema": SCHEMA,
            "environment": self._environment,
            "records": self._records,
        }
        write_document(self.file, document)


@contextmanager
def open_results(
    file: Path, *, is_mixed: bool = False, here: Mapping[str, Any] | None = None
) -> Iterator[ResultsFile]:
    """Open the results of this machine for adding; one run at a time.

    Args:
        file: The file.
        is_mixed: True where records may be of several engines; each names its own then.
        here: What figures depend on; None for `environment()`.

    Raises:
        ResultsError: another run holds the file, or it is of another machine or other versions.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_name(f".{file.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ResultsError(f"{file}: another run is adding to it") from error
        yield ResultsFile(file, here or environment(), is_mixed=is_mixed)


def load_results(file: Path) -> dict[str, Any]:
    """Return the whole document.

    Raises:
        ResultsError: there is none, or it is not one of this suite.
    """
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ResultsError(f"{file}: cannot be read: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ResultsError(f"{file}: no results of this suite (expected schema {SCHEMA})")
    return document


def _difference(old: Mapping[str, Any], new: Mapping[str, Any], *, is_mixed: bool) -> str:
    """Return what is not the same; where engines may differ, packages may be missing, too."""
    flat = [{**side, **side.get("versions", {})} for side in (old, new)]
    both = {**flat[0], **flat[1]}.keys() - {"versions"}
    names = sorted(name for name in both if flat[0].get(name) != flat[1].get(name))
    if is_mixed:
        absent = {name for side in flat for name, value in side.items() if value is None}
        names = [name for name in names if name != ENGINE and name not in absent]
    return ", ".join(
        f"{name} {flat[0].get(name)} there, {flat[1].get(name)} here" for name in names
    )


def _processor() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    stripped = {key.strip(): value.strip() for key, value in fields.items()}
    flags = (stripped.get("flags") or stripped.get("Features") or "").split()
    return {
        "cpu": stripped.get("model name", platform.machine()),
        "model": "-".join(stripped.get(key, "?") for key in ("cpu family", "model", "stepping")),
        "features": [flag for flag in _FLAGS if flag in flags],
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
