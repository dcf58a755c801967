"""Releases of the toolkit as readers: the one format whose fields come and go behind one door."""

from aoebank.formats.runtime_kb.releases import (
    SCHEMA,
    SUFFIX,
    TilingHeader,
    guess_release,
    known_releases,
    make_release,
    parse_header,
    parse_release,
    serialize_release,
)

__all__ = [
    "SCHEMA",
    "SUFFIX",
    "TilingHeader",
    "guess_release",
    "known_releases",
    "make_release",
    "parse_header",
    "parse_release",
    "serialize_release",
]
