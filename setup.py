"""What pyproject.toml cannot say: README on a package index, with absolute links."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
_LINK = re.compile(r"(!?)(\[(?:[^][]|\[[^]]*\])*\])\((?!https?:|#)([^)\s]+)\)")


def readme_of_index() -> str:
    """Return README with links to the files of this version in the repository."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source, version = project["urls"]["Source"], project["version"]

    def absolute(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        kind = "raw" if picture else "tree" if target.endswith("/") else "blob"
        return f"{picture}{words}({source}/{kind}/v{version}/{target})"

    return _LINK.sub(absolute, (ROOT / "README.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    setup(long_description=readme_of_index(), long_description_content_type="text/markdown")
