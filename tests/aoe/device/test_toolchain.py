"""Finding and running the C compiler."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from support.engine.fakes import make_target

from aoe.device.compiler import check_toolchain
from aoe.device.kept_objects import KeptObjects
from aoe.device.toolchain import Toolchain, find_toolchain, for_compiler, halide_include
from aoe.errors import BuildError, BuildTimeoutError, CompilerNotFoundError
from aoe.folders.disk_cache import DiskCache
from aoe.target import InstructionSet, Target


def _program(folder: Path, name: str, script: str = "#!/bin/sh\nexit 0\n") -> Path:
    file = folder / name
    file.write_text(script)
    file.chmod(0o755)
    return file


def _no_package(name: str) -> None:
    """Find nothing, as where the package is not installed."""


def test_cc_is_a_command_line(tmp_path: Path) -> None:
    _program(tmp_path, "mycc")
    found = find_toolchain({"PATH": str(tmp_path), "CC": "mycc -m64 '-DX=a b'"})
    assert found.command == ("mycc", "-m64", "-DX=a b")


def test_cc_wins_over_path(tmp_path: Path) -> None:
    _program(tmp_path, "gcc")
    mine = _program(tmp_path, "mycc")
    assert find_toolchain({"PATH": str(tmp_path), "CC": str(mine)}).command == (str(mine),)


@pytest.mark.parametrize("command", ["no-such-compiler", "/nowhere/cc -O2"])
def test_cc_that_is_not_there_is_an_error_and_no_fallback(tmp_path: Path, command: str) -> None:
    _program(tmp_path, "gcc")
    with pytest.raises(CompilerNotFoundError, match="CC: the C compiler it names") as caught:
        find_toolchain({"PATH": str(tmp_path), "CC": command})
    assert f"got {command.split()[0]}" in str(caught.value)
    assert "apt install gcc" in str(caught.value.hint)


def test_cc_with_an_open_quote_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(CompilerNotFoundError, match=r"CC: not a command line.*got gcc 'x"):
        find_toolchain({"PATH": str(tmp_path), "CC": "gcc 'x"})


@pytest.mark.parametrize("names", [("cc", "gcc", "clang"), ("gcc", "clang"), ("clang",)])
def test_compilers_on_path_are_taken_in_order(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        _program(tmp_path, name)
    assert find_toolchain({"PATH": str(tmp_path)}).command == (str(tmp_path / names[0]),)


def test_ziglang_is_the_fallback(tmp_path: Path) -> None:
    found = find_toolchain({"PATH": str(tmp_path)}, lambda name: ModuleSpec(name, None))
    assert found.command == (sys.executable, "-P", "-m", "ziglang", "cc")


def test_no_compiler_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(CompilerNotFoundError, match="none found") as caught:
        find_toolchain({"PATH": str(tmp_path)}, _no_package)
    for word in ("apt install gcc", "dnf install gcc", "pip install ziglang"):
        assert word in str(caught.value.hint)
    assert isinstance(caught.value, FileNotFoundError)


def test_failing_compiler_s_last_words_are_kept(tmp_path: Path) -> None:
    script = "#!/bin/sh\nfor i in $(seq 50); do echo line $i >&2; done\nexit 7\n"
    toolchain = Toolchain(command=(str(_program(tmp_path, "cc", script)),))
    with pytest.raises(BuildError, match=r"linking: .* failed with code 7") as caught:
        toolchain.run(["x.c"], what="linking")
    assert "line 50" in str(caught.value)
    assert "line 30\n" not in str(caught.value)


def test_compiler_that_cannot_be_run_is_a_build_error(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cannot run"):
        Toolchain(command=(str(tmp_path / "gone"),)).run([], what="linking")


def test_compiler_that_hangs_is_ended(tmp_path: Path) -> None:
    script = "#!/bin/sh\nexec tail -f /dev/null\n"
    toolchain = Toolchain(command=(str(_program(tmp_path, "cc", script)),), timeout_s=0.2)
    with pytest.raises(BuildTimeoutError, match=r"took over 0\.2 s"):
        toolchain.run([], what="linking")


def test_this_machine_s_compiler_passes_the_check(toolchain: Toolchain, target: Target) -> None:
    check_toolchain(toolchain, target)


_COUNTING = """#!/bin/sh
case " $* " in *" -c "*) echo >> "$0.compiled";; *) echo >> "$0.linked";; esac
exec cc "$@"
"""


def _counted(compiler: Path) -> tuple[int, int]:
    """Return the number of C files that were compiled, and of libraries linked."""
    files = (compiler.with_name(f"cc.{what}") for what in ("compiled", "linked"))
    counts = [len(file.read_text().splitlines()) if file.exists() else 0 for file in files]
    return counts[0], counts[1]


def test_glue_is_compiled_once_for_all_runs_with_a_compiler(tmp_path: Path, target: Target) -> None:
    compiler = _program(tmp_path, "cc", _COUNTING)
    kept = KeptObjects(files=DiskCache(tmp_path / "kept", 1 << 20))
    toolchain = Toolchain(command=(str(compiler),), kept=kept)
    check_toolchain(toolchain, target)
    compiled, linked = _counted(compiler)
    assert compiled >= 6 and linked == 1
    check_toolchain(toolchain, target)
    assert _counted(compiler) == (compiled, 2)  # it has to link all the same
    for file in (tmp_path / "kept").iterdir():
        file.write_bytes(file.read_bytes()[:-9])  # torn
    check_toolchain(toolchain, target)
    assert _counted(compiler) == (2 * compiled, 3)
    compiler.write_text(_COUNTING + "# updated")
    check_toolchain(toolchain, target)
    assert _counted(compiler) == (3 * compiled, 4)


def test_compiler_that_knows_no_amx_leaves_the_target_its_vectors(tmp_path: Path) -> None:
    tiles = InstructionSet(cpu_features=("amx_tile", "amx_int8"))
    target, told = make_target(int8_dot=tiles, int8_tiles=tiles, bf16_tiles=tiles), list[str]()
    old = "#!/bin/sh\ncase \" $* \" in *-mamx*) echo 'unrecognized -mamx-tile' >&2; exit 1;; esac\n"
    compiler = Toolchain(command=(str(_program(tmp_path, "cc", old)),))
    found = for_compiler(target, compiler, told.append)
    assert found == replace(target, int8_tiles=None, bf16_tiles=None)
    assert ["knows no AMX" in text for text in told] == [True]
    newer = Toolchain(command=(str(_program(tmp_path, "newer", "#!/bin/sh\nexit 0\n")),))
    assert for_compiler(target, newer, told.append) == target
    assert for_compiler(found, compiler, told.append) == found
    assert len(told) == 1


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\necho 'stdio.h: No such file' >&2\nexit 1\n", "cannot build a library"),
        ("#!/bin/sh\nexit 0\n", "wrote no library"),
    ],
)
def test_useless_compiler_is_found_before_any_tuning(
    tmp_path: Path, target: Target, script: str, message: str
) -> None:
    toolchain = Toolchain(command=(str(_program(tmp_path, "cc", script)),))
    with pytest.raises(BuildError, match=message) as caught:
        check_toolchain(toolchain, target)
    assert "install" in str(caught.value.hint)


def test_halide_s_header_is_found() -> None:
    assert (halide_include() / "HalideRuntime.h").is_file()


def test_missing_halide_says_what_to_install() -> None:
    with pytest.raises(BuildError, match="halide: the package is not installed") as caught:
        halide_include(_no_package)
    assert caught.value.hint == "pip install halide"


_SLEEPS = "#!/bin/sh\nsleep 1000 &\necho $! >> '{pids}'\nwait\n"


def _is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _wait_until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_what_a_hanging_compiler_has_started_ends_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = _SLEEPS.format(pids=pids)
    toolchain = Toolchain(command=(str(_program(tmp_path, "cc", script)),), timeout_s=0.5)
    with pytest.raises(BuildTimeoutError):
        toolchain.run([], what="linking")
    (started,) = map(int, pids.read_text().split())
    _wait_until(lambda: not _is_alive(started))


def test_interrupt_ends_compilers_of_other_threads(tmp_path: Path, target: Target) -> None:
    pids = tmp_path / "pids"
    toolchain = Toolchain(command=(str(_program(tmp_path, "cc", _SLEEPS.format(pids=pids))),))
    with (
        pytest.raises(KeyboardInterrupt),
        ThreadPoolExecutor(1) as beside,
        toolchain.ended_by_interrupt(),
    ):
        checked = beside.submit(check_toolchain, toolchain, target)
        _wait_until(pids.exists)
        raise KeyboardInterrupt
    with pytest.raises(BuildError):
        checked.result()
    started = list(map(int, pids.read_text().split()))
    _wait_until(lambda: not any(map(_is_alive, started)))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'cc: x.s: No space left on device' >&2; exit 1", "TMPDIR"),
        ("echo 'cannot open x: Too many open files' >&2; exit 1", "ulimit -n"),
        ("kill -XFSZ $$", "ulimit -f"),
        ("kill -KILL $$", "memory"),
    ],
)
def test_cause_that_is_not_the_compiler_s_is_not_mended_by_another_one(
    tmp_path: Path, target: Target, script: str, words: str
) -> None:
    toolchain = Toolchain(command=(str(_program(tmp_path, "cc", f"#!/bin/sh\n{script}\n")),))
    with pytest.raises(BuildError) as caught:
        check_toolchain(toolchain, target)
    assert words in str(caught.value.hint) and "apt install" not in str(caught.value.hint)
