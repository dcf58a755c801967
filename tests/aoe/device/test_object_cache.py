"""Compiled kernels kept from run to run: whole, checked, bounded, shared by processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.engine.fakes import make_target
from support.engine.families import chain_workload, schedules_of

from aoe.bank.sources import family_files, kernel_source
from aoe.device.compiler import KernelSource
from aoe.device.kept_objects import KeptObjects
from aoe.device.object_cache import ObjectCache, object_key, sources_digest
from aoe.folders.disk_cache import DiskCache
from aoe.kernels.registry import FAMILIES
from aoe.target import Target

_TARGET = make_target()
_EXP = chain_workload(("Exp",))
_SOURCE = KernelSource(name="k", workload=_EXP, schedule=schedules_of(_EXP, _TARGET, 2)[0])


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    """Return an empty cache with room for a megabyte."""
    return ObjectCache(tmp_path / "cache", _TARGET, limit_bytes=1 << 20)


def _objects(folder: Path, name: str = "k", size: int = 2000) -> list[Path]:
    folder.mkdir(exist_ok=True)
    files = [folder / f"{name}.o", folder / f"{name}.pack1.o"]
    for file in files:
        file.write_bytes(os.urandom(size))
    return files


def _taken(cache: ObjectCache, folder: Path, source: KernelSource = _SOURCE) -> dict[str, bytes]:
    folder.mkdir(exist_ok=True)
    found = cache.take(source, folder)
    assert found == any(folder.iterdir())
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_what_was_put_is_taken(cache: ObjectCache, tmp_path: Path) -> None:
    assert _taken(cache, tmp_path / "before") == {}
    files = _objects(tmp_path / "built")
    cache.put(_SOURCE, files)
    assert _taken(cache, tmp_path / "out") == {file.name: file.read_bytes() for file in files}
    assert cache.hits == 1


def test_empty_objects_are_not_kept(cache: ObjectCache, tmp_path: Path) -> None:
    cache.put(_SOURCE, _objects(tmp_path / "built", size=0))
    assert _taken(cache, tmp_path / "out") == {}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-40],
        lambda data: b"",
        lambda data: data[:900] + bytes([data[900] ^ 255]) + data[901:],
        lambda data: b"PK" + bytes(500),
    ],
)
def test_damaged_file_is_no_hit_and_goes(
    cache: ObjectCache, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    cache.put(_SOURCE, _objects(tmp_path / "built"))
    (file,) = cache.root.glob("*.kernel")
    file.write_bytes(spoil(file.read_bytes()))
    assert _taken(cache, tmp_path / "out") == {}
    assert not file.exists()


def test_objects_that_others_could_have_put_there_are_no_hit(
    cache: ObjectCache, tmp_path: Path
) -> None:
    cache.put(_SOURCE, _objects(tmp_path / "built"))
    cache.root.chmod(0o777)
    assert _taken(cache, tmp_path / "out") == {}
    cache.root.chmod(0o755)
    assert _taken(cache, tmp_path / "out") != {}
    (file,) = cache.root.glob("*.kernel")
    file.chmod(0o666)
    assert _taken(cache, tmp_path / "later") == {}
    cache.put(_SOURCE, _objects(tmp_path / "again"))  # compiled anew, it takes that one's place
    assert _taken(cache, tmp_path / "last") != {}


def test_other_kernel_target_version_or_source_is_another_file() -> None:
    keys = {
        object_key(_SOURCE, _TARGET),
        object_key(replace(_SOURCE, name="other"), _TARGET),
        object_key(replace(_SOURCE, schedule=schedules_of(_EXP, _TARGET, 2)[1]), _TARGET),
        object_key(replace(_SOURCE, workload=chain_workload(("Exp",), shape=(3, 8))), _TARGET),
        object_key(_SOURCE, _other_target()),
        object_key(_SOURCE, _TARGET, ("no_runtime",)),
        object_key(_SOURCE, _TARGET, halide_version="0.0"),
        object_key(_SOURCE, _TARGET, sources=lambda family: "edited"),
    }
    assert len(keys) == 8


def test_each_family_has_the_digest_of_its_own_sources() -> None:
    digests = {name: sources_digest(name) for name in FAMILIES}
    assert len(set(digests.values())) == len(FAMILIES)
    assert sources_digest("elementwise") == digests["elementwise"]


def test_kernel_of_a_family_without_sources_is_not_kept(cache: ObjectCache, tmp_path: Path) -> None:
    source = replace(_SOURCE, workload=replace(_EXP, op_type="made_at_run_time"))
    cache.put(source, _objects(tmp_path / "built"))
    assert not cache.take(source, tmp_path)
    assert list(cache.root.glob("*.kernel")) == []


def _other_target() -> Target:
    return make_target(features=("avx2", "fma"))


def test_renewing_takes_nothing_and_keeps_what_is_put(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache", _TARGET, limit_bytes=1 << 20)
    cache.put(_SOURCE, _objects(tmp_path / "old"))
    renewing = ObjectCache(tmp_path / "cache", _TARGET, limit_bytes=1 << 20, renew=True)
    assert not renewing.take(_SOURCE, tmp_path)
    files = _objects(tmp_path / "new")
    renewing.put(_SOURCE, files)
    assert _taken(cache, tmp_path / "out")["k.o"] == files[0].read_bytes()


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache", _TARGET, limit_bytes=20_000)
    sources = [replace(_SOURCE, name=f"k{number}") for number in range(5)]
    for number, source in enumerate(sources):
        cache.put(source, _objects(tmp_path / "built", source.name, size=2500))
        os.utime(next(cache.root.glob(f"{object_key(source, _TARGET)}*")), (number, number))
    assert cache.take(sources[0], tmp_path)  # used now
    cache.prune()
    (tmp_path / "out").mkdir()
    assert [cache.take(source, tmp_path / "out") for source in sources] == [
        True,
        False,
        False,
        True,
        True,
    ]


def test_place_that_cannot_be_written_to_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ObjectCache(tmp_path / "file" / "cache", _TARGET, limit_bytes=1)
    cache.put(_SOURCE, _objects(tmp_path / "built"))
    cache.prune()
    assert not cache.take(_SOURCE, tmp_path)


@pytest.mark.slow
def test_processes_that_put_take_and_prune_at_once_see_whole_kernels_only(tmp_path: Path) -> None:
    script = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from tests.aoe.device.test_object_cache import _SOURCE, _TARGET
from aoe.device.kept_objects import KeptObjects
from aoe.device.object_cache import ObjectCache
cache = ObjectCache(Path(sys.argv[1]), _TARGET, limit_bytes=60_000)
mine = Path(sys.argv[2]); mine.mkdir()
for turn in range(60):
    name = f"k{turn % 7}"
    source = replace(_SOURCE, name=name)
    (mine / f"{name}.o").unlink(missing_ok=True)
    if cache.take(source, mine):
        data = (mine / f"{name}.o").read_bytes()
        assert len(set(data)) == 1 and len(data) == 30_000, "torn"
    else:
        (mine / f"{name}.o").write_bytes(bytes([turn % 251]) * 30_000)
        cache.put(source, [mine / f"{name}.o"])
    cache.prune()
"""
    root = Path(__file__).parents[3]
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", script, str(tmp_path / "cache"), str(tmp_path / str(n))),
                *(str(root), str(root / "tests")),
            ]
        )
        for n in range(3)
    ]
    assert [process.wait(120) for process in processes] == [0, 0, 0]


def test_digests_of_sources_are_those_that_are_read_and_known_to_the_next_run(
    cache: ObjectCache, tmp_path: Path
) -> None:
    family = next(iter(family_files()))
    assert cache.kernel_source(family) == kernel_source(family)
    assert cache.kernel_source("no_such_family") is None
    (kept,) = cache.root.glob(f"*-{family}.sources")
    kept.write_text(kept.read_text().replace(str(kernel_source(family)), "of the file"))
    again = ObjectCache(cache.root, _TARGET, limit_bytes=1 << 20)
    assert again.kernel_source(family) == "of the file"
    kept.write_text("torn")
    assert ObjectCache(cache.root, _TARGET, limit_bytes=1 << 20).kernel_source(
        family
    ) == kernel_source(family)


def test_text_that_is_torn_is_not_known(tmp_path: Path) -> None:
    kept = KeptObjects(files=DiskCache(tmp_path / "kept", 1 << 20))
    kept.put_text("digest.verdict", "slower")
    assert kept.text("digest.verdict") == "slower"
    (file,) = (tmp_path / "kept").rglob("digest.verdict")
    file.write_bytes(b"\xff\xfe")
    assert kept.text("digest.verdict") is None
