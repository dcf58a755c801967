"""The C compiler that links kernel libraries."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from aoe.child_python import module_command
from aoe.device.kept_objects import KeptObjects
from aoe.errors import BuildError, BuildTimeoutError, CompilerNotFoundError
from aoe.settings import environment
from aoe.target import Target

_CANDIDATES = ("cc", "gcc", "clang")
_STDERR_LINES = 12

FindPackage = Callable[[str], ModuleSpec | None]


_CAUSES = (
    (("No space left", "quota exceeded"), "make room there, or set TMPDIR to a folder with room"),
    (("Too many open files",), "raise the limit on open files: ulimit -n"),
    (("File too large", "File size limit", "SIGXFSZ"), "raise the limit on file sizes: ulimit -f"),
    (("annot fork", "Resource temporarily"), "raise the limit on processes: ulimit -u"),
    (("Killed", "SIGKILL", "out of memory"), "the system ended it: is there memory left?"),
)
"""Causes that are not the compiler's, by what it or the system says of them, and the way out."""


@dataclass(frozen=True, slots=True)
class _RunningCompilers:
    """Compilers of a process that run now, each the leader of a process group."""

    processes: set[subprocess.Popen[bytes]] = field(default_factory=set)  # The leaders
    lock: threading.Lock = field(default_factory=threading.Lock)  # Held while one is begun or ended
    # Set once all were ended: no other is begun.
    ended: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """A command that compiles and links C."""

    command: tuple[str, ...]  # Its words, for example `("gcc",)`
    timeout_s: float = 120.0  # After which a compiler is ended
    # Whether each compiler leads a process group of its own, so that what it has started ends with
    # it. Not in a worker, whose group ends as a whole.
    own_group: bool = True
    # Keeps objects it has compiled for later runs, None for none.
    kept: KeptObjects | None = None
    _running: _RunningCompilers = field(
        default_factory=_RunningCompilers, init=False, repr=False, compare=False
    )

    def identity(self) -> tuple[str, ...]:
        """Return its words, and what changes with an update of the programs among them."""
        facts = []
        for word in self.command:
            with suppress(OSError):
                status = Path(shutil.which(word) or word).stat()
                facts.append(f"{status.st_size} {status.st_mtime_ns}")
        return (*self.command, *facts)

    def run(self, arguments: Sequence[str], *, what: str) -> None:
        """Run the compiler.

        Raises:
            BuildError: it failed; the message ends with its own words.
            BuildTimeoutError: it did not finish.
        """
        # a file, not a pipe: what a compiler has started may keep a pipe open after its end
        try:
            with tempfile.TemporaryFile() as said:
                code = self._run([*self.command, *arguments], said.fileno(), what)
                said.seek(0)
                text = said.read().decode("utf-8", "replace")
        except BuildError:
            raise
        except OSError as error:
            problem = f"cannot run {self.command[0]}: {error}"
            raise BuildError(what, problem, hint=_way_out(problem)) from error
        if code:
            tail = "\n".join(text.strip().splitlines()[-_STDERR_LINES:])
            how = f"failed with code {code}" if code > 0 else f"was ended by {_signal(-code)}"
            problem = f"{self.command[0]} {how}\n{tail}".rstrip()
            raise BuildError(what, problem, hint=_way_out(problem))

    def _run(self, command: Sequence[str], output: int, what: str) -> int:
        running = self._running
        with running.lock:
            if running.ended.is_set():
                raise BuildError(what, "the run has ended")
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **environment(),
                    "LC_ALL": "C",
                    **_scratch_of(command),
                },  # `_CAUSES` are English
                process_group=0 if self.own_group else None,
            )
            running.processes.add(process)
        try:
            return process.wait(self.timeout_s)
        except subprocess.TimeoutExpired as error:
            problem = f"{self.command[0]} took over {self.timeout_s} s"
            raise BuildTimeoutError(what, problem) from error
        finally:
            with running.lock:
                running.processes.discard(process)
            self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                if self.own_group:
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
            process.wait()

    @contextmanager
    def ended_by_interrupt(self) -> Iterator[None]:
        """End compilers that run in other threads when this one is interrupted."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            self._running.ended.set()
            with self._running.lock:
                for process in self._running.processes:
                    self._end(process)
            raise


def _scratch_of(command: Sequence[str]) -> dict[str, str]:
    """Return the variable that puts a compiler's temporary files beside its result.

    A compiler that is killed leaves them; there they go with the scratch folder of the run.
    """
    named = [file for flag, file in pairwise(command) if flag == "-o"]
    return {"TMPDIR": str(Path(named[0]).absolute().parent)} if named else {}


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _way_out(problem: str) -> str | None:
    """Return the hint on a cause that is not the compiler's; None where none is known."""
    return next((hint for words, hint in _CAUSES if any(word in problem for word in words)), None)


def find_toolchain(env: Mapping[str, str], find_package: FindPackage = find_spec) -> Toolchain:
    """Return the C compiler: `$CC`, else cc, gcc or clang on `$PATH`, else PyPI's ziglang.

    Args:
        env: Environment variables.
        find_package: Returns where a Python package is, None if it is not installed.

    Raises:
        CompilerNotFoundError: there is none; the hint says what to install.
    """
    path = env.get("PATH")
    chosen = _words(env.get("CC", ""))
    if chosen:
        if shutil.which(chosen[0], path=path):
            return Toolchain(command=tuple(chosen))
        raise CompilerNotFoundError(
            "CC", "the C compiler it names is not there", got=chosen[0], hint=INSTALL_HINT
        )
    for name in _CANDIDATES:
        found = shutil.which(name, path=path)
        if found:
            return Toolchain(command=(found,))
    if find_package("ziglang"):
        return Toolchain(command=tuple(module_command("ziglang", "cc")))
    raise CompilerNotFoundError(
        "C compiler",
        "none found, and kernels have to be linked",
        expected="cc, gcc or clang on PATH, or CC set",
        hint=INSTALL_HINT,
    )


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise CompilerNotFoundError(
            "CC", f"not a command line: {str(error).lower()}", got=command, hint=INSTALL_HINT
        ) from error


_TILES_FLAGS = ("-mamx-tile", "-mamx-int8", "-mamx-bf16")


def for_compiler(target: Target, toolchain: Toolchain, warn: Callable[[str], None]) -> Target:
    """Return the target as far as a compiler knows it: GCC before 11 has no word for AMX.

    Halide compiles kernels, but their sums in matrix tiles are C. Without tiles, vectors do.
    """
    if target.bf16_tiles is None and target.int8_tiles is None:
        return target
    try:
        asked = (*_TILES_FLAGS, "-fsyntax-only", "-x", "c", os.devnull)
        toolchain.run(asked, what="asking for AMX")
    except BuildError:
        warn(
            f"{' '.join(toolchain.command)} knows no AMX, GCC 11 and later do: nothing is computed "
            "in matrix tiles"
        )
        return replace(target, bf16_tiles=None, int8_tiles=None)
    return target


INSTALL_HINT = (
    "apt install gcc (Debian, Ubuntu), dnf install gcc (Fedora), or: python -m pip install ziglang"
)


def halide_include(find_package: FindPackage = find_spec) -> Path:
    """Return the directory of Halide's public C header, which the wheel ships."""
    spec = find_package("halide")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError("halide", "the package is not installed", hint="pip install halide")
    return Path(spec.submodule_search_locations[0]) / "include"
