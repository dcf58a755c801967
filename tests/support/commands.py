"""`aoe` run in this process, as its command line is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aoe.cli.app import main
from aoe.tuner.parts import REAL_ENGINE, EngineParts


def aoe_exit_code(words: Sequence[object], engine: EngineParts = REAL_ENGINE) -> int:
    """Run `aoe` with these words and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words], engine=engine)
    code = ended.value.code
    assert isinstance(code, int)
    return code
