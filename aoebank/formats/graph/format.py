"""Format E, the subgraph bank: a version line, then one subgraph per line.

Source: the built-in banks of CANN 8.1; their reader and writer are closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from aoebank.formats.graph.rules import (
    HEADER,
    MEMBERS,
    check_graph_file,
    group_problems,
    header_problem,
    line_problems,
    own_time_us,
)
from aoebank.formats.graph.words import partition_words, subgraph_words
from aoebank.formats.names import BankName, plain_soc
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.text import json_text
from aoebank.formats.text.checks import BOM, is_blank
from aoebank.formats.text.json_lines import iter_values
from aoebank.formats.text.record import record_text, stored
from aoebank.formats.text.scan import start_scan
from aoebank.formats.text.splice import splice
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonObject, JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

FILE_NAME = re.compile(r"(?P<soc>[0-9A-Za-z_-]+)_(?:l2cache|l2fusion|l1fusion)\.json", re.ASCII)
_CONTENT = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"version"\s*:\s*"[^"\n]*"\s*\}\s*(?:\Z|\{[^\n]*"feature"\s*:)'
)


class GraphFormat(Format):
    """Reads and writes `<soc>_{l2cache,l2fusion,l1fusion}.json`."""

    name = "graph"
    empty = HEADER + b"\n"
    content = _CONTENT  # A version line starts the file, and a subgraph follows
    globs = ("*_l2cache.json", "*_l2fusion.json", "*_l1fusion.json")
    name_pattern = "<soc_version in lower case>_<l2cache|l2fusion|l1fusion>.json"
    first_wins = True
    is_found_by_key = False  # how a graphID is computed is not public

    def parse_name(self, name: str) -> BankName | None:
        """Return the target from the name of a subgraph bank."""
        match = FILE_NAME.fullmatch(name)
        return BankName(soc_version=match["soc"]) if match else None

    def build_name(self, target: BankName | Query) -> str:
        """Return the name of a built-in subgraph bank; names of custom ones are not known."""
        soc = target.soc_version
        return f"{'<soc_version>' if soc is None else plain_soc(soc)}_l2cache.json"

    def is_soc(self, spelled: str, soc_version: str) -> bool:
        """True if they are equal as names of subgraph banks spell them."""
        return plain_soc(spelled) == plain_soc(soc_version)

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the subgraphs; the version line is kept and is no record."""
        scan = start_scan(data, path)
        for number, (value, start, end) in enumerate(iter_values(scan)):
            is_first = number == 0 and is_blank(data[:start].removeprefix(BOM))
            header = header_problem(value, is_first=is_first)
            if header is not None:
                scan.report(header, start, end)
            if isinstance(value, Mapping) and "version" in value and "graphID" not in value:
                continue
            problems = [*line_problems(value)]
            for problem in problems:
                scan.report(problem, start, end)
            if not problems and isinstance(value, Mapping):
                scan.add(str(value["graphID"]), start, end)
        return scan.file(self)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position; the time stays in the strategy, too."""
        text = record_text(parsed, number)
        value = json_text.loads(text.text)
        for problem in line_problems(value):
            raise text.error(problem)
        assert isinstance(value, Mapping)
        record = Record(
            **stored(parsed, number, text),
            workload=value["feature"],
            strategy=value["strategy"],
            cost_us=own_time_us(value["strategy"]),
            extra={name: value[name] for name in value if name not in MEMBERS},
        )
        return with_raw(record, parsed.raw(number))

    def workload_words(self, record: Record) -> str:
        """Return the operators of a subgraph and what the first of them reads."""
        return subgraph_words(record.workload)

    def strategy_words(self, record: Record) -> Iterator[str]:
        """Return the passes over the nodes of each group."""
        return partition_words(record.strategy)

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield contradictions within the groups, and subgraphs that come twice."""
        return check_graph_file(parsed)

    def header(self, parsed: ParsedFile) -> str:
        """Return the version line, white space left out; `none` where there is none."""
        line = parsed.data[: parsed.starts[0] if len(parsed) else None].removeprefix(BOM)
        return b"".join(line.split()).decode("utf-8", errors="replace")[:60] or "none"

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched lines byte for byte."""
        return splice(parsed, changes, render_graph)


def make_graph_record(
    *,
    graph_id: str,
    feature: Sequence[JsonObject],
    groups: Sequence[JsonObject],
    end_to_end_ns: int,
    model_name: str | None = None,
) -> Record:
    """Return the record of a subgraph, refusing what is no line of this format.

    Args:
        graph_id: Identity of the subgraph, an unsigned 64-bit number in decimal.
        feature: Its parts, each with a member `struct`: one item per node.
        groups: What is done with each part: `cut`, `fusionType` and `scopeId` with one item per
            node, and `ubPass`.
        end_to_end_ns: Measured time of the subgraph.
        model_name: The model it comes from; None where that is nobody's business.

    Raises:
        ValueError: a member is missing, has another form or does not fit the others.
    """
    strategy: dict[str, JsonValue] = {
        "end2EndTime": end_to_end_ns,
        "group": [dict(group) for group in groups],
    }
    if model_name is not None:
        strategy["modelName"] = model_name
    value: dict[str, JsonValue] = {
        "feature": {"feature": [dict(part) for part in feature]},
        "graphID": graph_id,
        "strategy": strategy,
    }
    problem = next(chain(line_problems(value), group_problems(value)), None)
    if problem is not None:
        raise ValueError(f"{problem.message} (got {problem.got}, expected {problem.expected})")
    return Record(
        key=graph_id,
        format="graph",
        workload=value["feature"],
        strategy=strategy,
        cost_us=own_time_us(strategy),
    )


def render_graph(record: Record) -> bytes:
    """Return the line of a record, compact with sorted members."""
    document: dict[str, JsonValue] = {
        "feature": record.workload,
        "graphID": record.key,
        "strategy": record.strategy,
        **record.extra,
    }
    return json_text.dumps_compact(document).encode("utf-8")
