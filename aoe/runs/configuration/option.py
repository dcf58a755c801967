"""A row of the table of options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from inspect import Parameter
from typing import Any

from aoe.runs.configuration.parsing import Parser
from aoebank import Param


class Group(StrEnum):
    """Headings of options in the help of the command."""

    MODEL = "Model"
    WHAT = "What is tuned"
    SEARCH = "Search"
    PRECISION = "Precision"
    RESULTS = "Results"
    ABOUT = "About"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option(Param):
    """A row of the table: what the command line takes, and what else there is to an option."""

    name: str = ""
    """Parameter of `aoe.tune`, and name in `aoe doctor`; `--name` is its flag where it has a group
    and names no other."""
    alias: str = ""
    """Its other name: of the member of `TuneSettings` with its value, of the option of
    `aoe.torch.optimize`, and of the parameter of `aoe.tune` before it had this one."""
    member: str = ""
    """Member of `TuneSettings` with its value, where that has a third name."""
    kind: Any = None
    """Type on the command line, where the type of the parameter does not say it."""
    group: Group | None = None
    """Heading in the help of the command."""
    unset: str = ""
    """What stands for the value there if nothing is said, in words; empty where the help has no
    need of it."""
    doc: str = ""
    """Meaning for callers of `aoe.tune`, where it is another one."""
    after: str = ""
    """Option behind which the help shows it, of an option of the command alone."""
    value: object = None
    """Value if nothing is said, where it is another one than the default on the command line."""
    parse: Parser | None = None
    """Reads a value wherever it was written; None for one that stays as it is."""
    meaning: str = ""
    """In a few words, for `aoe doctor` and the table of settings; empty for options of one call
    alone, which no file and no variable can say."""
    key: str = ""
    """Member of the JSON file of `--config`."""
    ini_key: str = ""
    """Key of `aoe.ini`."""
    variable: str = ""
    """Of the environment."""
    stands_for: str = ""
    """The default in words, where its value does not say it."""
    variable_first: bool = False
    """True where the variable counts before the file, as AOE documents it."""

    def named(self, name: str) -> Option:
        """Return the row under a name."""
        own = (f"--{name}",) if self.group is not None else ()
        return replace(
            self,
            name=name,
            member=self.member or self.alias or name,
            kind=self.kind or str,
            flags=self.flags or own,
        )

    @property
    def option(self) -> str:
        """Flag on the command line, empty if there is none."""
        return self.flags[0] if self.flags else ""

    @property
    def initial(self) -> Any:
        """Value if nothing is said, None where the program finds one."""
        if self.value is not None:
            return self.value
        return None if self.default is Parameter.empty else self.default

    @property
    def text(self) -> str:
        """Meaning for the command line, with the default where it is in words."""
        return (
            f"{self.help.removesuffix('.')}; default is {self.unset}." if self.unset else self.help
        )

    @property
    def meaning_of_call(self) -> str:
        """Meaning for callers of `aoe.tune`."""
        return self.doc or self.text or f"{self.meaning[:1].upper()}{self.meaning[1:]}."

    @property
    def default_text(self) -> str:
        """The default in words."""
        return self.stands_for or str(self.initial)
