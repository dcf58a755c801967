"""Every error the bank layer raises, with its stable code and exit code."""

from __future__ import annotations

import os
import shlex
from pathlib import Path


class AoebankError(Exception):
    """Say what is wrong in one line, and in a second one what to do about it.

    Attributes:
        code: Stable word for programs; never reworded.
        exit_code: What a command returns when this error reaches it.
    """

    code = "error"
    exit_code = 3

    def __init__(
        self,
        problem: str,
        *,
        where: str = "",
        got: object = None,
        expected: object = None,
        hint: str = "",
        path: Path | None = None,
    ) -> None:
        self.problem = problem
        self.where = where or (str(path) if path else "")
        self.got = got
        self.expected = expected
        self.hint = hint
        self.path = path
        super().__init__(problem)

    @property
    def headline(self) -> str:
        """Compose `<where>: <what is wrong> (got X, expected Y)`."""
        pairs = (("got", self.got), ("expected", self.expected))
        facts = ", ".join(f"{word} {value}" for word, value in pairs if value is not None)
        text = f"{self.problem} ({facts})" if facts else self.problem
        return f"{self.where}: {text}" if self.where else text

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.problem, self.__dict__)

    def __str__(self) -> str:
        return f"{self.headline}\nhint: {self.hint}" if self.hint else self.headline


def shell_word(path: str | os.PathLike[str]) -> str:
    """Return a path as one word of a command a person copies from a hint.

    >>> shell_word("my bank/-x.json"), shell_word("-x.json")
    ("'my bank/-x.json'", './-x.json')
    """
    text = os.fspath(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def _restore(kind: type[AoebankError], problem: str, facts: dict[str, object]) -> AoebankError:
    error = kind.__new__(kind)
    error.args = (problem,)
    error.__dict__.update(facts)
    return error


class UsageError(AoebankError):
    """The command line asks for something that has no meaning."""

    code = "usage"
    exit_code = 2


class MissingPackageError(AoebankError, ImportError):  # type: ignore[misc]  # its path is a str
    """A package of an extra is needed and not installed."""

    code = "missing_package"


class FileSystemError(AoebankError):
    """The system refused to read or write: no permission, no space, a device that is gone."""

    code = "os"


class BankPathError(AoebankError):
    """A bank directory or file cannot be used; names the variable that chose it."""

    code = "bank_path"

    def __init__(
        self,
        problem: str,
        *,
        variable: str | None = None,
        where: str = "",
        got: object = None,
        expected: object = None,
        hint: str = "",
        path: Path | None = None,
    ) -> None:
        place = where or ": ".join(str(part) for part in (variable, path) if part)
        super().__init__(problem, where=place, got=got, expected=expected, hint=hint, path=path)
        self.variable = variable


class BankNotFoundError(BankPathError, FileNotFoundError):
    """A bank, a file of it, or a record does not exist."""

    code = "bank_not_found"


class BankPermissionError(BankPathError, PermissionError):
    """This user may not use a bank directory or file as its readers demand."""

    code = "bank_permission"


class BankLockedError(BankPathError, TimeoutError):
    """Another writer held the lock of a bank file for too long."""

    code = "bank_locked"


class BankFormatError(AoebankError, ValueError):
    """A bank file is not what its format says, at a line and column."""

    code = "bank_format"

    def __init__(
        self,
        problem: str,
        *,
        path: Path,
        line: int = 0,
        column: int = 0,
        got: object = None,
        expected: object = None,
        hint: str = "",
    ) -> None:
        where = f"{path}:{line}:{column}" if line else str(path)
        super().__init__(problem, where=where, got=got, expected=expected, hint=hint, path=path)
        self.line = line
        self.column = column


class HistoryError(AoebankError, LookupError):
    """A revision, a snapshot or a tag is unknown, or a history does not fit what was asked."""

    code = "history"


class RecordError(BankFormatError):
    """One record cannot be read; the others of its file can."""

    code = "record"

    def __init__(
        self,
        problem: str,
        *,
        path: Path,
        line: int = 0,
        column: int = 0,
        pointer: str = "",
        got: object = None,
        expected: object = None,
        hint: str = "",
    ) -> None:
        super().__init__(
            problem, path=path, line=line, column=column, got=got, expected=expected, hint=hint
        )
        self.pointer = pointer
        if pointer:
            self.where = f"{self.where}: {pointer}"
