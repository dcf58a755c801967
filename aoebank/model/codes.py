"""The closed set of finding codes: what each means and how bad it is by default."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Severity of a finding, worst first."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class FixClass(StrEnum):
    """The kinds of change that are safe to make, in the order they are made."""

    BOM = "bom"
    CRLF = "crlf"
    BLANK = "blank"
    KEY = "key"
    ORDER = "order"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCode:
    """One kind of finding: its default severity and its title."""

    severity: Severity
    title: str


def _error(title: str) -> FindingCode:
    return FindingCode(severity=Severity.ERROR, title=title)


def _warning(title: str) -> FindingCode:
    return FindingCode(severity=Severity.WARNING, title=title)


def _note(title: str) -> FindingCode:
    return FindingCode(severity=Severity.NOTE, title=title)


# 1xx text and syntax, 2xx structure, 3xx identity, 4xx values, 5xx files and trees
CODES: dict[str, FindingCode] = {
    "AB101": _error("file cannot be read"),
    "AB102": _error("bytes are not UTF-8"),
    "AB103": _error("text is not JSON"),
    "AB104": _error("merge conflict marker left in the file"),
    "AB105": _note("file starts with a byte order mark"),
    "AB106": _note("lines end with CR LF"),
    "AB107": _error("text after the end of the JSON value"),
    "AB108": _error("values are nested too deeply"),
    "AB109": _warning("member name appears twice in one object"),
    "AB110": _error("file is empty"),
    "AB111": _error("torn last line"),
    "AB112": _note("blank line"),
    "AB113": _error("line holds no record"),
    "AB114": _error("more bad lines than the reader survives"),
    "AB115": _note("file holds no record"),
    "AB116": _error("integer with more digits than Python reads"),
    "AB117": _error("file is a Git LFS pointer"),
    "AB119": _note("file is open: its closing braces are missing"),
    "AB201": _error("file is not one JSON object or list"),
    "AB202": _error("record is not a list of candidates"),
    "AB203": _error("record has no candidate"),
    "AB204": _error("candidate or line is not an object"),
    "AB205": _error("required member is missing"),
    "AB206": _error("member has the wrong type"),
    "AB207": _note("unknown member"),
    "AB208": _error("schema name or version is not known"),
    "AB209": _error("tiling field without a default is missing"),
    "AB210": _note("tiling field is missing and has a default"),
    "AB211": _warning("unknown field of a workload or strategy"),
    "AB212": _note("operator without a known schema"),
    "AB213": _error("lists that belong together differ in length"),
    "AB214": _warning("header line is missing or not known"),
    "AB215": _error("op of the record is not the op of the file"),
    "AB216": _note("missing tiling field is not taken from records"),
    "AB217": _warning("missing tiling field counts on one path only"),
    "AB218": _warning("missing tiling field without a default reaches no known kernel"),
    "AB219": _error("row has another number of columns than the header"),
    "AB220": _error("value stands in another column"),
    "AB221": _error("header line comes again"),
    "AB224": _note("members are not called as in the schema of their format"),
    "AB301": _error("same key twice in one file"),
    "AB302": _error("key is not 32 lower-case hexadecimal digits"),
    "AB303": _error("key is not the md5 of the info_dict text"),
    "AB304": _warning("candidates of one key have different workloads"),
    "AB305": _warning("same identity twice with equal strategies"),
    "AB306": _error("same identity twice with different strategies"),
    "AB307": _note("id is not the hash of the record"),
    "AB308": _note("id does not fit into 32 bits"),
    "AB309": _error("identity is not a 64-bit number in decimal"),
    "AB310": _warning("different workloads with the same 32-bit hash"),
    "AB311": _note("equal workloads under different identities"),
    "AB312": _error("same modelhash twice"),
    "AB313": _error("key no look-up can ask for"),
    "AB314": _warning("key is spelled with blanks"),
    "AB315": _warning("tuned rows name no device"),
    "AB316": _warning("classes of sizes leave a gap"),
    "AB319": _note("key has neither source nor compiler"),
    "AB401": _note("no measured time"),
    "AB402": _warning("measured time is zero or negative"),
    "AB403": _warning("candidates are not sorted by measured time"),
    "AB404": _error("value is not allowed"),
    "AB405": _error("value is outside the range of its C type"),
    "AB406": _error("strategy uses more cores than the file is for"),
    "AB407": _warning("number is converted by the reader"),
    "AB408": _warning("gradient record is empty or a placeholder"),
    "AB409": _warning("measured time is not plausible"),
    "AB410": _error("strategy is none its engine can replay"),
    "AB411": _warning("value is the text of a Python constant"),
    "AB415": _warning("time of the first configuration is NaN"),
    "AB501": _error("nothing there to read"),
    "AB502": _warning("file name does not follow the pattern of its format"),
    "AB503": _warning("soc_version in the name is not the one of the folder"),
    "AB504": _warning("file is no bank file"),
    "AB505": _warning("left-over of a write that died"),
    "AB506": _warning("provenance without its bank file"),
    "AB507": _note("provenance of a key that is not in the bank"),
    "AB508": _warning("binary twin is missing"),
    "AB509": _error("binary twin does not fit its bank file"),
    "AB510": _warning("strategy is slower than the built-in one it hides"),
    "AB511": _warning("link to a folder that is in the tree already"),
    "AB512": _note("built-in bank to compare with cannot be used"),
    "AB513": _error("record is in quarantine"),
    "AB514": _note("quarantine entry is out of use"),
    "AB515": _error("quarantine cannot be read"),
    "AB516": _note("records are not as sibling files have them"),
    "AB517": _note("records that sibling files have are missing"),
    "AB518": _warning("device name is empty"),
    "AB519": _warning("records of one target are copied from another"),
    "AB520": _warning("one target in two spellings"),
    "AB521": _warning("workload has two files in a folder"),
    "AB522": _note("look-up falls back to a newer version of the tool"),
}

# codes a class mends; with --select or --ignore it acts only if one of them is selected
FIXED_CODES: dict[FixClass, tuple[str, ...]] = {
    FixClass.BOM: ("AB105",),
    FixClass.CRLF: ("AB106",),
    FixClass.BLANK: ("AB112",),
    FixClass.KEY: ("AB302", "AB303", "AB307", "AB308", "AB314"),
    FixClass.ORDER: ("AB403",),
    FixClass.TEXT: (),
}

# what breaks or disturbs readers; the others rewrite lines of a sound file, and are asked for
MENDING = (FixClass.BOM, FixClass.CRLF, FixClass.BLANK)
