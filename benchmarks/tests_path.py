"""Makes `support`, the helpers of the tests, importable: `import tests_path  # noqa: F401`."""

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
# the packages come before tests/aoe and tests/aoebank, which look like namespace packages
sys.path.insert(0, str(_ROOT))
sys.path.append(str(_ROOT / "tests"))
