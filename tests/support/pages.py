"""HTML pages as a reader sees them."""

from __future__ import annotations

import re
from html.parser import HTMLParser


class ReadPage(HTMLParser):
    """A page taken apart; anything that could load or run something else is refused.

    Attributes:
        tags: Of all elements, in their order.
        attributes: Names of all attributes.
        ids: Their ids.
        links: Where links lead.
        texts: All text.
        open: Elements that were not closed.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self._text = text
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append(tag)
        if tag not in {"meta", "br", "input"}:
            self.open.append(tag)
        for name, value in attrs:
            assert name not in {"src", "onclick", "style", "onload"}
            self.attributes.add(name)
            if name == "id":
                self.ids.append(str(value))
            if name == "href":
                self.links.append(str(value))

    def handle_endtag(self, tag: str) -> None:
        """Close the element that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.texts.append(data)

    def assert_loads_nothing(self) -> None:
        """Assert that the page names no address and forbids itself to load."""
        assert "default-src &#39;none&#39;" in self._text
        assert not re.search(r"https?://|@import|url\(", self._text)
