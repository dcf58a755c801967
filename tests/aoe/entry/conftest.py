"""Fixtures for tests of entries."""

from __future__ import annotations

import pytest

_COMPILER = """#!/bin/sh
while [ "$1" != -o ]; do [ $# -gt 0 ] || exit 0; shift; done
: > "$2"
"""


@pytest.fixture
def quick_compiler(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let `CC` name a compiler that writes empty files: nothing is compiled where a run ends early.

    The check of the real one takes most of the time of a command that refuses its model.
    """
    script = tmp_path_factory.mktemp("compiler") / "cc"
    script.write_text(_COMPILER)
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
