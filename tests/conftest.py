"""Fixtures for all tests: no test ever sees the banks of whoever runs it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests may load ONNX Runtime before aoe does
# the packages come before tests/aoebank and tests/aoe, which look like namespace packages
TESTS = Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS.parent))
sys.path.append(str(TESTS))  # support
from support import tiers, workers  # noqa: E402
from support.faulty_system import FaultySystem  # noqa: E402
from support.once import made_once  # noqa: E402

# compiling a thousand modules in every worker and every program under test takes longer than tests
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest.register_assert_rewrite(
    "aoebank.testing", "support.contracts.kernels", "support.error_contract"
)

for _tier, _examples in ((tiers.EVERYDAY, 25), (tiers.SLOW, 300)):
    settings.register_profile(
        _tier,
        max_examples=_examples,
        deadline=None,  # nothing here asserts a time
        derandomize=bool(os.environ.get("CI")),  # the same examples in every CI run, others at home
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    )

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

# kernels that tests compile stay for later runs; HOME is another one during the tests
_CACHES = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
os.environ.setdefault("AOE_TEST_CACHE", str(Path(_CACHES) / "aoebank-tests"))
_IN_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 8 << 30
_MOST_WORKERS = 8
"""Tests measure and compile on two threads each; more workers take memory, not time."""
BANK_VARIABLES = ("TUNE_BANK_PATH", "ASCEND_CACHE_PATH", "ASCEND_WORK_PATH")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected output of commands"
    )
    parser.addoption(
        "--update-durations",
        action="store_true",
        help="record in tests/durations.json how long each test file took",
    )
    parser.addoption(
        "--slice",
        type=int,
        metavar="N",
        help="only slice N of the slow tier, counted round and round: two minutes on 2 cores",
    )
    parser.addoption(
        "--slice-limit",
        type=float,
        default=tiers.SLICE_LIMIT_S,
        metavar="SECONDS",
        help="skip what a slice has not begun by then, %(default)s",
    )


def _has_room(folder: Path) -> bool:
    """Tell whether a folder holds the files of all tests, and programs in it can be run."""
    if not os.access(folder, os.W_OK):
        return False
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize >= _ROOM_BYTES and not facts.f_flag & os.ST_NOEXEC


if _has_room(_IN_MEMORY):  # each file is synced to disk, which takes a tenth of the time
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))


_SLICE = pytest.StashKey[frozenset[tiers.Part]]()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(workers)
    tier = tiers.tier_of(config.option.markexpr)
    settings.load_profile(tier)
    number = config.getoption("--slice")
    is_retry = config.getoption("lf", default=False)  # what failed was in the slice
    if number is not None and not is_retry:
        slices = tiers.slices_of(tiers.files_with_tests(), tiers.load_durations(tier))
        config.stash[_SLICE] = slices[number % len(slices)]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a test in the slice: importing all of them takes as long as tests."""
    parts = config.stash.get(_SLICE, None)
    if parts is None or collection_path.suffix != ".py":
        return None
    file = collection_path.relative_to(TESTS.parent).as_posix()
    return True if file not in {part.file for part in parts} else None


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return a worker for each core and one for the time they wait; none for single files."""
    if all(Path(argument.partition("::")[0]).is_file() for argument in config.args):
        config.option.dist = "no"
        return 0
    return min(_MOST_WORKERS, len(os.sched_getaffinity(0)) + 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tier, its slice if one is asked for, and bring the longest files to the front."""
    tier = tiers.tier_of(config.option.markexpr)
    if tier == tiers.SLOW:  # properties are tried with more examples there
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker(pytest.mark.slow)
    left_out = {"gpu"} if tier == tiers.SLOW else {"gpu", "slow"}
    if config.option.markexpr and tier == tiers.EVERYDAY:
        left_out = set()  # pytest chooses by the expression alone
    _keep(config, items, lambda item: not any(map(item.get_closest_marker, left_out)))
    if tier == tiers.SLOW:
        _keep(config, items, lambda item: item.get_closest_marker("slow") is not None)
    durations = tiers.load_durations(tier)
    if (parts := config.stash.get(_SLICE, None)) is not None:
        chosen = tiers.tests_of(parts, [item.nodeid for item in items])
        _keep(config, items, lambda item: item.nodeid in chosen)
    files = tiers.longest_first((tiers.file_of(item.nodeid) for item in items), durations)
    order = {file: at for at, file in enumerate(files)}
    items.sort(key=lambda item: order[tiers.file_of(item.nodeid)])


def _keep(
    config: pytest.Config, items: list[pytest.Item], wanted: Callable[[pytest.Item], bool]
) -> None:
    left_out = [item for item in items if not wanted(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if wanted(item)]


_BEGAN_S = time.monotonic()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what its slice has no time left for, so that slow machines end theirs as well."""
    limit_s = item.config.getoption("--slice-limit")
    if _SLICE in item.config.stash and time.monotonic() - _BEGAN_S > limit_s:
        pytest.skip(f"its slice has taken {limit_s:.0f} s")


_SECONDS: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _SECONDS[tiers.file_of(report.nodeid)] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if config.getoption("--update-durations") and not hasattr(config, "workerinput"):
        tiers.save_durations(tiers.tier_of(config.option.markexpr), _SECONDS)


@pytest.fixture(autouse=True, scope="session")
def _no_real_bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point HOME at an empty folder, forget where banks are, believe figures of a busy machine.

    Of the cache of whoever runs the tests nothing is seen; compiled kernels stay for later runs.
    """
    changed = ("HOME", "XDG_CACHE_HOME", "AOE_ACCEPT_BUSY", "AOE_LOCK_PATH", *BANK_VARIABLES)
    saved = {name: os.environ.get(name) for name in changed}
    for name in BANK_VARIABLES:
        os.environ.pop(name, None)
    os.environ["HOME"] = str(tmp_path_factory.mktemp("home"))
    os.environ["XDG_CACHE_HOME"] = str(_cache_with_kept_kernels(tmp_path_factory))
    os.environ["AOE_ACCEPT_BUSY"] = "True"  # tests have busy neighbours
    os.environ["AOE_LOCK_PATH"] = str(tmp_path_factory.mktemp("locks"))  # and do not wait for them
    yield
    for name, value in saved.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _cache_with_kept_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    kernels = Path(os.environ["AOE_TEST_CACHE"]) / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (folder / "aoe").mkdir()
    (folder / "aoe" / "kernels").symlink_to(kernels)
    return folder


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> FaultySystem:
    """Return what puts faults into calls of the system."""
    return FaultySystem(monkeypatch)


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
    from support.aoe_contract import Runs, tune_models

    return Runs(*made_once(tmp_path_factory, "aoe_runs", lambda at: dict(tune_models(at).screens)))
