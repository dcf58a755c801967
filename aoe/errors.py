"""Errors of the engine: one message that names the place, the problem and the way out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

from aoebank import AoebankError


class AoeError(AoebankError):
    """Base of every error the engine reports to its user.

    Args:
        where: File, option, node or step the error is about.
        problem: What is wrong, in lower case, without a final stop.
        got: Value that was found, if one says more than `problem`.
        expected: What would have been right.
        hint: A command or a setting that leads out.
    """

    code = "AOE000"

    def __init__(
        self,
        where: str,
        problem: str,
        *,
        got: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(problem, where=where, got=got, expected=expected, hint=hint or "")
        if hint:
            self.add_note(f"hint: {hint}")  # what Python shows of an error nobody catches

    def __str__(self) -> str:
        return self.headline  # becomes a part of other messages: why a candidate failed


@contextmanager
def called(name: str, place: str) -> Iterator[None]:
    """Call a place by another name in errors: a scratch file says nothing to the user.

    Args:
        name: The name for the user, `model`.
        place: The beginning of `where` that it replaces, `--model=/tmp/...`.
    """
    try:
        yield
    except AoeError as error:
        if error.where.startswith(place):
            error.where = name + error.where.removeprefix(place)
        raise


class OptionError(AoeError, ValueError):
    """An option or an environment variable has a value that cannot be meant."""

    code = "AOE001"
    exit_code = 2


def unknown_name(where: str, problem: str, name: str, known: Sequence[str]) -> OptionError:
    """Return the refusal of a name that is none of the known ones, with the closest as a hint."""
    near = get_close_matches(name, known, n=1)
    return OptionError(
        where,
        problem,
        got=name,
        expected=f"one of {', '.join(known)}",
        hint=f"did you mean {near[0]}?" if near else None,
    )


class EngineNotInstalledError(AoeError, ImportError):  # type: ignore[misc]  # its path is a str
    """Only the bank layer is installed; tuning needs the `engine` extra."""

    code = "AOE002"


class ModelImportError(AoeError):
    """A model cannot be read, is not valid, or lacks what tuning needs (static shapes)."""

    code = "AOE010"


class ModelNotFoundError(ModelImportError, FileNotFoundError):
    """The model file does not exist."""

    code = "AOE011"


class TargetError(AoeError):
    """The requested soc_version cannot be tuned on this machine."""

    code = "AOE020"


class ScheduleError(AoeError):
    """A schedule step is illegal for the kernel; the candidate is dropped."""

    code = "AOE030"


class BuildError(AoeError):
    """A kernel or a kernel library could not be compiled or linked."""

    code = "AOE040"


class CompilerNotFoundError(BuildError, FileNotFoundError):
    """No C compiler is on this machine."""

    code = "AOE041"


class BuildTimeoutError(BuildError, TimeoutError):
    """Compiling took longer than its time-out."""

    code = "AOE042"


class RunError(AoeError):
    """A model or a candidate could not be executed."""

    code = "AOE050"


class RunTimeoutError(RunError, TimeoutError):
    """Executing took longer than its time-out; the worker was ended."""

    code = "AOE051"


class RemotePoolError(AoeError):
    """Workers on other machines cannot be reached, or none of them can be used."""

    code = "AOE052"


class LeftAloneError(RunError):
    """A training script cannot be tuned; it goes on as it is."""

    code = "AOE053"


class EndedEarlyError(RunError):
    """A training script was over before its tuning was."""

    code = "AOE056"


class TurnTimeoutError(RunTimeoutError):
    """The time limit was over before another run had ended its turn on the same cores."""

    code = "AOE054"


class WorkerDiedError(RunError):
    """The measuring process died of the code it ran."""

    code = "AOE055"


class AccuracyError(AoeError):
    """A tuned model does not compute what the untuned one does."""

    code = "AOE060"


class OfflineModelError(AoeError):
    """An `.om` file is broken, incomplete or made by an unknown version."""

    code = "AOE070"


class OutputError(AoeError, OSError):
    """A result cannot be written: no permission, no space, not a directory."""

    code = "AOE080"


class ResultFileError(AoeError, ValueError):
    """A result file is broken, incomplete or not one that can be shown."""

    code = "AOE081"


class FallbackWarning(UserWarning):
    """The untuned model is run, because the tuned one does not fit this machine."""


class MeasurementError(AoeError):
    """Samples are too few or too odd to conclude anything from them."""

    code = "AOE090"


ERRORS_OF_A_MODEL = (
    ModelImportError,
    OfflineModelError,
    RunError,
    AccuracyError,
    MeasurementError,
)
"""They say something about one model; of a directory, all others would meet the next one too."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, the name of its class where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
