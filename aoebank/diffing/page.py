"""A difference as one HTML page: figures, roll-up, the worst first, strategies side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from aoebank.diffing.fields import FieldChange
from aoebank.diffing.report import (
    ROLLUP,
    WORDS,
    DiffReport,
    changes_by_kind,
    field_value,
    percent,
    summary_lines,
)
from aoebank.diffing.result import (
    ChangeKind,
    DiffResult,
    FileMove,
    RecordChange,
    RollupRow,
    TimeVerdict,
)
from aoebank.report.html import (
    Content,
    Markup,
    columns,
    element,
    html_page,
    join,
    listing,
    page_header,
    section,
    tiles,
)
from aoebank.report.output import cut, plural

MAX_ROWS = 2000  # per table; a browser takes more, a reader does not
_MOST_OPEN = 5  # strategies
_LONG = 300  # characters of one value
_MOODS = {"slower": "bad", "faster": "good"}
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
    cells = (
        (title, kind, partial(_rollup_cell, cell, _MOODS.get(title, "")) if kind == "r" else cell)
        for title, kind, cell in ROLLUP
    )
    drawn = columns(rows[:MAX_ROWS], *cells, name="roll-up", drops_empty=True)
    return _section("By soc_version and op_type", len(rows), drawn, *([rest] if quiet else []))


def _rollup_cell(cell: Callable[[RollupRow], str], mood: str, one: RollupRow) -> Markup:
    words = cell(one)
    return element(
        "td",
        words,
        data_sort="0" if words == "-" else words.rstrip("x"),
        class_=f"right {mood if words != '-' else 'none'}".rstrip(),
    )


def _moves(moves: Sequence[FileMove]) -> Markup:
    if not moves:
        return Markup("")
    drawn = columns(
        moves,
        ("soc_version", "", _move_words),
        ("A", "", lambda move: _code_cell(move.a)),
        ("B", "", lambda move: _code_cell(move.b)),
        ("equal records", "r", _equal_cell),
        name="moved files",
    )
    return section("Moved files", drawn, count=f"{len(moves):,}")


def _move_words(move: FileMove) -> str:
    return f"{move.soc_a} → {move.soc_b}" if move.soc_a and move.soc_b else "as before"


def _equal_cell(move: FileMove) -> Markup:
    return _number(f"{move.equal} of {move.records_a}", move.similarity)


def _code_cell(text: str, **attributes: str) -> Markup:
    return element("td", element("code", text), **attributes)


def _change_section(title: str, changes: Sequence[RecordChange]) -> Markup:
    drawn = columns(changes[:MAX_ROWS], *_CHANGE_COLUMNS, name=title, drops_empty=True)
    return _section(title, len(changes), drawn)


def _kind_cell(change: RecordChange) -> Markup:
    word = element("span", WORDS[change.kind][0], class_=f"kind {change.kind}")
    return element("td", word)


def _ratio_cell(change: RecordChange) -> Markup:
    return _number(_ratio(change), change.cost_ratio, _mood(change), _doubt(change))


def _about_cell(change: RecordChange) -> Markup:
    about = element("span", change.problem or change.workload)
    where = change.file if change.file_a is None else f"{change.file_a} → {change.file}"
    file = element("small", change.file.rpartition("/")[2], title=where)
    return element("td", about, file, class_="about")


def _key_cell(change: RecordChange) -> Markup:
    return element("td", element("code", cut(change.key, 40), title=change.key[:_LONG]))


_CHANGE_COLUMNS: tuple[tuple[str, str, Callable[[RecordChange], Content]], ...] = (
    ("", "", _kind_cell),
    ("ratio", "r", _ratio_cell),
    ("A (us)", "r", lambda change: _time_cell(change.cost_a_us)),
    ("B (us)", "r", lambda change: _time_cell(change.cost_b_us)),
    ("soc_version", "", lambda change: change.soc_version or "-"),
    ("op_type", "", lambda change: change.op_type or "-"),
    ("workload", "", _about_cell),
    ("key", "", _key_cell),
)


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
    head = element(
        "summary",
        element("code", cut(change.key, 40)),
        f" {change.op_type or ''} ",
        element("b", _ratio(change), class_=_mood(change)),
        element("small", change.workload),
    )
    members = columns(
        change.fields,
        ("member", "", lambda field: _code_cell(field.pointer or "/")),
        ("A", "", lambda field: _side_cell(field, of_b=False)),
        ("B", "", lambda field: _side_cell(field, of_b=True)),
        name="members",
    )
    return element("details", head, members, open="" if is_open else False)


def _side_cell(field: FieldChange, *, of_b: bool) -> Markup:
    return _code_cell(cut(field_value(field, of_b=of_b), _LONG), class_="new" if of_b else "old")


def _mood(change: RecordChange) -> str:
    return {TimeVerdict.SLOWER: "bad", TimeVerdict.FASTER: "good"}.get(change.verdict, "")


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


def _time_cell(cost_us: float | None) -> Markup:
    return _number("" if cost_us is None else f"{cost_us:,.6g}", cost_us)


def _footer(result: DiffResult) -> Markup:
    return element(
        "footer",
        f"Noise band {percent(result.noise_ratio)}, wider where the recorded samples "
        "spread more. Ratios are time in B / time in A. Click a heading to sort.",
    )
