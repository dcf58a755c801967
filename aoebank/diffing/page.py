"""A difference as one HTML page: figures, roll-up, the worst first, strategies side by side."""

from __future__ import annotations

from collections.abc import Sequence

from aoebank.diffing.report import (
    ROLLUP,
    WORDS,
    DiffReport,
    changes_by_kind,
    field_value,
    percent,
    summary_lines,
)
from aoebank.diffing.result import ChangeKind, DiffResult, FileMove, RecordChange, TimeVerdict
from aoebank.report.html import (
    Content,
    Markup,
    element,
    html_page,
    join,
    listing,
    page_header,
    row,
    section,
    table,
    tiles,
)
from aoebank.report.output import cut, plural

MAX_ROWS = 2000  # per table; a browser takes more, a reader does not
_MOST_OPEN = 5  # strategies
_LONG = 300  # characters of one value
_CHANGE_HEADER = ("", "ratio", "A (us)", "B (us)", "soc_version", "op_type", "workload", "key")
_FIGURES = (1, 2, 3)
_TILES = (
    ("slower", "bad"),
    ("faster", "good"),
    ("strategy", "note"),
    ("added", ""),
    ("removed", ""),
    ("moved", ""),
    ("unchanged", ""),
)


def diff_html(report: DiffReport) -> str:
    """Return the page."""
    result = report.result
    sections: list[Markup] = [_rollup(result)]
    if not report.is_stat:
        slower, *others = (_change_section(*one) for one in changes_by_kind(result))
        sections += [slower, _strategies(result), _moves(result.moves), *others]
    body = [_header(report), _tiles(result), _problems(result), *sections, _footer(result)]
    return html_page(f"Bank diff: {result.a} -> {result.b}", *body)


def _header(report: DiffReport) -> Markup:
    result = report.result
    sides = join((element("code", result.a), " → ", element("code", result.b)))
    return page_header("Bank diff", sides, *summary_lines(result, report.fail_on_ratio))


def _tiles(result: DiffResult) -> Markup:
    numbers = {
        "slower": result.count_verdict(TimeVerdict.SLOWER),
        "faster": result.count_verdict(TimeVerdict.FASTER),
        "moved": result.moved,
        "unchanged": result.unchanged,
        "strategy": result.count(ChangeKind.STRATEGY),
        "added": result.count(ChangeKind.ADDED),
        "removed": result.count(ChangeKind.REMOVED),
    }
    words = {"strategy": "strategy changed"}
    found = [
        (f"{numbers[name]:,}", words.get(name, name), mood if numbers[name] else "")
        for name, mood in _TILES
    ]
    times = result.times()
    if times is not None:
        noise = 1 + result.noise_ratio
        mood = "bad" if times.mean_ratio > noise else "good" if times.mean_ratio < 1 / noise else ""
        found.insert(0, (f"{times.mean_ratio:.3f}x", "mean time, B / A", mood))
    return tiles(found)


def _problems(result: DiffResult) -> Markup:
    if not result.problems:
        return Markup("")
    names = (problem.headline for problem in result.problems)
    return section("Not compared", listing(names), class_="problems")


def _rollup(result: DiffResult) -> Markup:
    rows = [row for row in result.rollup if not row.is_quiet]
    quiet = len(result.rollup) - len(rows)
    rest = element("p", f"{plural(quiet, 'more row')} without any change", class_="more")
    shown = rows[:MAX_ROWS]
    cells = [tuple(cell(row) for _, _, cell in ROLLUP) for row in shown]
    used = _used_columns(cells)
    header = [ROLLUP[place][0] for place in used]
    right = [number for number, place in enumerate(used) if place >= 2]
    drawn = table(header, (_rollup_row(words, used) for words in cells), right, "roll-up")
    return _section("By soc_version and op_type", len(rows), drawn, *([rest] if quiet else []))


def _used_columns(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns in which a row has something to tell."""
    columns = zip(*rows, strict=True)
    return [place for place, cells in enumerate(columns) if {*cells} - {"", "-"}]


def _rollup_row(words: Sequence[str], used: Sequence[int]) -> Markup:
    moods = {2: "bad", 3: "good"}
    cells = (
        words[place]
        if place < 2
        else element(
            "td",
            words[place],
            data_sort="0" if words[place] == "-" else words[place].rstrip("x"),
            class_=f"right {moods.get(place, '') if words[place] != '-' else 'none'}".rstrip(),
        )
        for place in used
    )
    return row(*cells)


def _moves(moves: Sequence[FileMove]) -> Markup:
    if not moves:
        return Markup("")
    rows = (
        row(
            f"{move.soc_a} → {move.soc_b}" if move.soc_a and move.soc_b else "as before",
            _code_cell(move.a),
            _code_cell(move.b),
            _number(f"{move.equal} of {move.records_a}", move.similarity),
        )
        for move in moves
    )
    drawn = table(("soc_version", "A", "B", "equal records"), rows, (3,), "moved files")
    return section("Moved files", drawn, count=f"{len(moves):,}")


def _code_cell(text: str, **attributes: str) -> Markup:
    return element("td", element("code", text), **attributes)


def _change_section(title: str, changes: Sequence[RecordChange]) -> Markup:
    shown = changes[:MAX_ROWS]
    used = _used_columns([_change_words(change) for change in shown])
    header = [_CHANGE_HEADER[place] for place in used]
    right = [number for number, place in enumerate(used) if place in _FIGURES]
    rows = (_change_row(change, used) for change in shown)
    return _section(title, len(changes), table(header, rows, right, title))


def _change_words(change: RecordChange) -> tuple[str, ...]:
    """Return the cells that decide whether a column is shown."""
    ratio = "" if change.cost_ratio is None else "x"
    costs = (_microseconds(change.cost_a_us), _microseconds(change.cost_b_us))
    names = (change.soc_version or "", change.op_type or "")
    return WORDS[change.kind][0], ratio, *costs, *names, "workload", change.key


def _change_row(change: RecordChange, used: Sequence[int]) -> Markup:
    ratio = change.cost_ratio
    mood = {TimeVerdict.SLOWER: "bad", TimeVerdict.FASTER: "good"}.get(change.verdict, "")
    about = element("span", change.problem or change.workload)
    where = change.file if change.file_a is None else f"{change.file_a} → {change.file}"
    file = element("small", change.file.rpartition("/")[2], title=where)
    word = WORDS[change.kind][0]
    cells = (
        element("td", element("span", word, class_=f"kind {change.kind}")),
        _number(_ratio(change), ratio, mood, _doubt(change)),
        _number(_microseconds(change.cost_a_us), change.cost_a_us),
        _number(_microseconds(change.cost_b_us), change.cost_b_us),
        change.soc_version or "-",
        change.op_type or "-",
        element("td", about, file, class_="about"),
        element("td", element("code", cut(change.key, 40), title=change.key[:_LONG])),
    )
    return row(*(cells[place] for place in used))


def _ratio(change: RecordChange) -> Content:
    ratio = change.cost_ratio
    text = "" if ratio is None else f"{ratio:.3f}x"
    if change.verdict is not TimeVerdict.NOT_COMPARABLE:
        return text
    return join((text, element("small", "not comparable")))


def _doubt(change: RecordChange) -> str:
    if change.verdict is TimeVerdict.NOT_COMPARABLE:
        return "measured in different environments: not comparable"
    band = percent(change.noise_ratio)
    return f"noise band {band}" if change.cost_ratio is not None else ""


def _strategies(result: DiffResult) -> Markup:
    changed = [change for change in result.changes if change.fields]
    blocks = join(
        _strategy(change, is_open=number < _MOST_OPEN)
        for number, change in enumerate(changed[:MAX_ROWS])
    )
    return _section("Changed strategies, member by member", len(changed), blocks)


def _strategy(change: RecordChange, *, is_open: bool) -> Markup:
    mood = {TimeVerdict.SLOWER: "bad", TimeVerdict.FASTER: "good"}.get(change.verdict, "")
    head = element(
        "summary",
        element("code", cut(change.key, 40)),
        f" {change.op_type or ''} ",
        element("b", _ratio(change), class_=mood),
        element("small", change.workload),
    )
    rows = (
        row(
            _code_cell(field.pointer or "/"),
            _code_cell(cut(field_value(field, of_b=False), _LONG), class_="old"),
            _code_cell(cut(field_value(field, of_b=True), _LONG), class_="new"),
        )
        for field in change.fields
    )
    members = table(("member", "A", "B"), rows, name="members")
    return element("details", head, members, open="" if is_open else False)


def _section(title: str, number: int, *content: Content) -> Markup:
    """Return a section with a heading, nothing where there is nothing to tell."""
    if not number:
        return Markup("")
    more = f"{number - MAX_ROWS:,} more: aoebank diff --json has them all"
    rest = [element("p", more, class_="more")] if number > MAX_ROWS else []
    return section(title, *content, *rest, count=f"{number:,}")


def _number(text: Content, value: float | None, mood: str = "", title: str = "") -> Markup:
    return element(
        "td",
        text or "-",
        class_=f"right {mood}".rstrip(),
        title=title or False,
        data_sort="" if value is None else repr(float(value)),
    )


def _microseconds(cost_us: float | None) -> str:
    return "" if cost_us is None else f"{cost_us:,.6g}"


def _footer(result: DiffResult) -> Markup:
    return element(
        "footer",
        f"Noise band {percent(result.noise_ratio)}, wider where the recorded samples "
        "spread more. Ratios are time in B / time in A. Click a heading to sort.",
    )
