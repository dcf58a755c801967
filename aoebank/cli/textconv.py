"""`aoebank textconv`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A bank file, broken or not.")],
    as_json: AsJson = False,
) -> int:
    """Print a bank file as text, one line per member, as git shows it in diffs."""
    from aoebank.api.comparing import textconv
    from aoebank.report.output import write_document, write_text
    from aoebank.storage.bank import load_file

    text = textconv(file)
    if as_json:
        parsed = load_file(file)
        facts = {"format": str(parsed.format.name), "records": len(parsed), "text": text}
        write_document({"schema": "aoebank.textconv/1", **facts})
    else:
        write_text(text)
    return 0
