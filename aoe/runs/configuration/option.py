"""A row of the table of options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aoe.runs.configuration.parsing import Parser


class Group(StrEnum):
    """Headings of options in the help of the command."""

    MODEL = "Model"
    WHAT = "What is tuned"
    SEARCH = "Search"
    PRECISION = "Precision"
    RESULTS = "Results"
    ABOUT = "About"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A row of the table.

    Attributes:
        name: Parameter of `aoe.tune` and name in `aoe doctor`: that of the member.
        flags: On the command line, the first is shown; none where the command does not take it.
        cli: Type there.
        group: Heading in the help.
        help: Meaning, for the command line.
        unset: What stands for the value there if nothing is said, in words; empty where the help
            has no need of it.
        doc: Meaning for callers of `aoe.tune`, where it is another one.
        metavar: Stands for the value in the help.
        least: Smallest number the command line takes.
        most: Largest.
        hidden: True to leave it out of the help.
        after: Option behind which the help shows it, of an option of the command alone.
        default: Value if nothing is said; None where the program finds one.
        shown: The default as the command line has it, where that is written in another way.
        parse: Reads a value wherever it was written; None for options of one call alone, which
            no file and no variable can say.
        meaning: In a few words, for `aoe doctor` and the table of settings.
        key: Member of the JSON file of `--config`.
        ini_key: Key of `aoe.ini`.
        variable: Of the environment.
        stands_for: The default in words, where its value does not say it.
        variable_first: True where the variable counts before the file, as AOE documents it.
    """

    name: str = ""
    flags: tuple[str, ...] = ()
    cli: Any = str
    group: Group | None = None
    help: str = ""
    unset: str = ""
    doc: str = ""
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    hidden: bool = False
    after: str = ""
    default: object = None
    shown: object = None
    parse: Parser | None = None
    meaning: str = ""
    key: str = ""
    ini_key: str = ""
    variable: str = ""
    stands_for: str = ""
    variable_first: bool = False

    @property
    def option(self) -> str:
        """Flag on the command line, empty if there is none."""
        return self.flags[0] if self.flags else ""

    @property
    def cli_default(self) -> object:
        """Value on the command line if nothing is said."""
        return self.shown if self.shown is not None else self.default

    @property
    def cli_help(self) -> str:
        """Meaning for the command line, with the default where it is in words."""
        return (
            f"{self.help.removesuffix('.')}; default is {self.unset}." if self.unset else self.help
        )

    @property
    def text(self) -> str:
        """Meaning for callers of `aoe.tune`."""
        return self.doc or self.cli_help or f"{self.meaning[:1].upper()}{self.meaning[1:]}."

    @property
    def default_text(self) -> str:
        """The default in words."""
        return self.stands_for or str(self.default)
