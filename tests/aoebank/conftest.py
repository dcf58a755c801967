"""Fixtures for the tests of the bank toolkit."""

from __future__ import annotations

import pytest
from support.faulty_system import FaultySystem


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> FaultySystem:
    """Return what puts faults into calls of the system."""
    return FaultySystem(monkeypatch)
