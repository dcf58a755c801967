"""Releases as readers of runtime banks: a list of them, and the document of one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aoebank.errors import AoebankError
from aoebank.formats.release import Release
from aoebank.formats.releases import SCHEMA, serialize_release
from aoebank.report.output import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasesReport:
    """The releases known by name, the newest first."""

    releases: Sequence[Release]
    schema: str = "aoebank.schema-list/1"
    error: AoebankError | None = None
    exit_code: int = 0

    def document(self) -> Mapping[str, object]:
        """Return name, source and operators of each."""
        return {
            "releases": [
                {"name": release.name, "source": release.source, "operators": [*release.tilings]}
                for release in self.releases
            ]
        }

    def write(self, text: Text) -> None:
        """Write a line per release."""
        rows = [(release.name, release.source) for release in self.releases]
        text.table(("release", "source"), rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseReport:
    """One release as its document, which is a data file as it stands."""

    release: Release
    schema: str = SCHEMA
    error: AoebankError | None = None
    exit_code: int = 0

    def document(self) -> Mapping[str, object]:
        """Return the members of the document."""
        document: dict[str, object] = json.loads(serialize_release(self.release))
        document.pop("schema")
        return document

    def write(self, text: Text) -> None:
        """Write the document, a few fields per line."""
        for line in serialize_release(self.release).splitlines():
            text.line(line)
