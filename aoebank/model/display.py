"""Results as Python shows them: the command's text at a prompt, its tables in a notebook, rows.

Values lie below the reports and may not import them, so a value names its report. It is loaded when
somebody looks at the value.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from aoebank.errors import MissingPackageError


class RichDisplay:
    """A value that a prompt and a notebook show as its command does.

    Attributes:
        shown_by: Place of its report, `module:name`, called with the value as `result`.
        rows_in: Member of the report's document that has the rows.
    """

    __slots__ = ()
    shown_by: ClassVar[str]
    rows_in: ClassVar[str]

    def __repr__(self) -> str:
        text: str = load_place("aoebank.report.display:text_of")(self._report())
        return text

    def _repr_html_(self) -> str:
        """Return the tables for a notebook, everything in them escaped."""
        page: str = load_place("aoebank.report.display:html_of")(self._report())
        return page

    def to_records(self) -> list[dict[str, Any]]:
        """Return the rows as plain dictionaries, as the `--json` document of the command has them.

        Numbers, texts, lists and None only, whatever the value itself holds.
        """
        return [dict(row) for row in self._report().document()[self.rows_in]]

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame`, a member of the document for each column.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise MissingPackageError(
                "needs pandas, which is not installed",
                where="to_pandas",
                hint="python -m pip install 'aoebank[pandas]'",
            ) from error
        return pandas.DataFrame(self.to_records())

    def _report(self) -> Any:
        return load_place(self.shown_by)(result=self)


def load_place(place: str) -> Any:
    """Return the object that `module:name` names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
