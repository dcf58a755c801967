"""The C compiler that links kernel libraries."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from aoe.child_python import module_command
from aoe.errors import BuildError, BuildTimeoutError, CompilerNotFoundError

_CANDIDATES = ("cc", "gcc", "clang")
_STDERR_LINES = 12

FindPackage = Callable[[str], ModuleSpec | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """A command that compiles and links C.

    Attributes:
        command: Its words, for example `("gcc",)`.
        timeout_s: After which a compiler is ended.
    """

    command: tuple[str, ...]
    timeout_s: float = 120.0

    def run(self, arguments: Sequence[str], *, what: str) -> None:
        """Run the compiler.

        Raises:
            BuildError: it failed; the message ends with its own words.
            BuildTimeoutError: it did not finish.
        """
        try:
            done = subprocess.run(
                [*self.command, *arguments],
                capture_output=True,
                text=True,
                timeout=self.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            problem = f"{self.command[0]} took over {self.timeout_s} s"
            raise BuildTimeoutError(what, problem) from error
        except OSError as error:
            raise BuildError(what, f"cannot run {self.command[0]}: {error}") from error
        if done.returncode:
            tail = "\n".join(done.stderr.strip().splitlines()[-_STDERR_LINES:])
            raise BuildError(what, f"{self.command[0]} failed with code {done.returncode}\n{tail}")


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


INSTALL_HINT = (
    "apt install gcc (Debian, Ubuntu), dnf install gcc (Fedora), or: python -m pip install ziglang"
)


def halide_include(find_package: FindPackage = find_spec) -> Path:
    """Return the directory of Halide's public C header, which the wheel ships."""
    spec = find_package("halide")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError("halide", "the package is not installed", hint="pip install halide")
    return Path(spec.submodule_search_locations[0]) / "include"
