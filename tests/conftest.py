"""Fixtures for all tests: no test ever sees the banks of whoever runs it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests may load ONNX Runtime before aoe does
# the packages come before tests/aoebank and tests/aoe, which look like namespace packages
TESTS = Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS.parent))
sys.path.append(str(TESTS))  # support
pytest.register_assert_rewrite("aoebank.testing", "aoe.testing.kernels")

settings.register_profile(
    "shared-machine",
    deadline=None,  # nothing here asserts a time
    derandomize=bool(os.environ.get("CI")),  # the same examples in every CI run, others at home
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)
settings.load_profile("shared-machine")

for _number, _default in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGTERM, signal.SIG_DFL),
):
    # programs under test keep on ignoring what they were started to ignore (nohup, jobs of a shell)
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)
# and what was blocked when they were started never reaches them
signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGHUP, signal.SIGTERM))

with suppress(ImportError):  # PyTorch's exporter draws bars where optuna has brought tqdm along
    import tqdm

    tqdm.tqdm.monitor_interval = 0  # or a thread outlives the first bar, and tests count threads

_BEGAN = time.monotonic()
_KERNELS = TESTS / "aoe" / "kernels"
BANK_VARIABLES = ("TUNE_BANK_PATH", "ASCEND_CACHE_PATH", "ASCEND_WORK_PATH")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected output of commands"
    )
    parser.addoption(
        "--seconds",
        type=float,
        help="skip what has not begun after so long, kernels first, as CI does on a slow machine",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what has not begun when the time is up."""
    seconds = item.config.getoption("--seconds")
    if seconds is not None and time.monotonic() - _BEGAN > seconds:
        pytest.skip(f"not begun within {seconds:g} s")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is opt-in, unless `-m` says what is wanted; where time may run out, order."""
    if config.getoption("--seconds") is not None:  # the largest part comes last
        items.sort(key=lambda item: _KERNELS in item.path.parents)
    if config.getoption("-m"):
        return
    opt_in = [item for item in items if any(map(item.get_closest_marker, ("slow", "gpu")))]
    config.hook.pytest_deselected(items=opt_in)
    items[:] = [item for item in items if item not in opt_in]


@pytest.fixture(autouse=True, scope="session")
def _no_real_bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point HOME at an empty folder, forget where banks are, believe figures of a busy machine."""
    changed = ("HOME", "AOE_ACCEPT_BUSY", "AOE_LOCK_PATH", *BANK_VARIABLES)
    saved = {name: os.environ.get(name) for name in changed}
    for name in BANK_VARIABLES:
        os.environ.pop(name, None)
    os.environ["HOME"] = str(tmp_path_factory.mktemp("home"))
    os.environ["AOE_ACCEPT_BUSY"] = "True"  # tests have busy neighbours
    os.environ["AOE_LOCK_PATH"] = str(tmp_path_factory.mktemp("locks"))  # and do not wait for them
    yield
    for name, value in saved.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Return whether golden files are to be rewritten."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def shared_data() -> Path:
    """Return the folder of real banks beside the repository, or skip."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("real banks are not here")
    return folder


@pytest.fixture(scope="session")
def aoe_runs(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Return a folder in which small models were tuned: `support.aoe_contract.Runs`."""
    from support.aoe_contract import tune_models

    return tune_models(tmp_path_factory.mktemp("aoe"))
