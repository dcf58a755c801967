"""Releases as readers of runtime banks: a list of them, and the document of one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aoebank.formats.release import Release
from aoebank.formats.releases import SCHEMA, serialize_release
from aoebank.report.output import Report, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasesReport(Report):
    """The releases known by name, the newest first."""

    releases: Sequence[Release]
    schema: str = "aoebank.schema-list/1"

    def document(self) -> Mapping[str, object]:
        return {
            "releases": [
                {"name": release.name, "source": release.source, "operators": [*release.tilings]}
                for release in self.releases
            ]
        }

    def write(self, text: Text) -> None:
        rows = [(release.name, release.source) for release in self.releases]
        text.table(("release", "source"), rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseReport(Report):
    """One release as its document, which is a data file as it stands."""

    release: Release
    schema: str = SCHEMA

    def document(self) -> Mapping[str, object]:
        document: dict[str, object] = json.loads(serialize_release(self.release))
        document.pop("schema")
        return document

    def write(self, text: Text) -> None:
        for line in serialize_release(self.release).splitlines():
            text.line(line)
