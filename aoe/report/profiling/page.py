"""A profile, or two of them, as one HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aoe.profiling.comparing import ComparedProfiles
from aoe.profiling.figures import FusionLimit, OperatorProfile, ProfiledModel
from aoe.report.profiling.charts import compared_bars, key, kind_bars, roofline
from aoe.report.profiling.comparison import names_text
from aoe.report.profiling.network import draw_network
from aoe.report.profiling.style import SCRIPT, STYLE
from aoe.report.profiling.text import figure, here, result_text
from aoe.report.quantities import time_text
from aoebank import Markup, element, html_page, join, plural

_MOST_NAMES = 6


def render_profile(profile: ProfiledModel) -> str:
    """Return the page of one profile."""
    links = _links(profile)
    return html_page(
        f"{profile.model}: profile",
        _skip(),
        _header(profile.model, _subtitle(profile)),
        _tiles(profile),
        _section("Time by kind of operator", kind_bars(profile.kinds())),
        _roofline(profile, links),
        _network(profile, links),
        _operators(profile),
        *_threads(profile),
        *_fusion(profile.fusion),
        _footer(profile),
        style=STYLE,
        script=SCRIPT,
    )


def render_comparison(compared: ComparedProfiles) -> str:
    """Return the page of two profiles; the graph and the table of operators are of the second."""
    before, after = compared.before, compared.after
    links = _links(after)
    return html_page(
        f"{before.model} and {after.model}: profiles",
        _skip(),
        _header(f"{before.model} \u2192 {after.model}", _subtitle(after)),
        _compared_tiles(compared),
        *_doubts(compared),
        _section("Time by kind of operator", compared_bars(compared.kinds())),
        _roofline(after, links, before.operators),
        _changes(compared),
        _network(after, links),
        _operators(after),
        _footer(after),
        style=STYLE,
        script=SCRIPT,
    )


def _links(profile: ProfiledModel) -> dict[str, str]:
    return {operator.name: f"#op-{at}" for at, operator in enumerate(profile.operators)}


def _skip() -> Markup:
    return element("a", "to the table of operators", href="#operators", class_="skip")


def _header(title: str, subtitle: str) -> Markup:
    return element("header", element("h1", title), element("p", subtitle))


def _subtitle(profile: ProfiledModel) -> str:
    return (
        f"{profile.cpu_model} ({profile.soc_version}), {plural(profile.threads, 'thread')}, "
        f"{plural(profile.runs, 'run')} under ONNX Runtime's profiler"
    )


# ---- tiles ----


def _tiles(profile: ProfiledModel) -> Markup:
    share = profile.lost_us / (profile.operators_us or 1.0)
    tiles = [
        (time_text(profile.model_us), "a run (median)", ""),
        (time_text(profile.model_min_us), "shortest run", ""),
        (time_text(profile.lost_us), f"lost, {share:.0%} of the operators", "bad"),
        (str(len(profile.operators)), "operators", ""),
        (f"{profile.peak.flops_per_us / 1e3:.0f} GF/s", "the machine at its best", ""),
    ]
    if profile.best_threads is not None:
        tiles.append((str(profile.best_threads), "threads are fastest", "note"))
    return element("section", *(_tile(*tile) for tile in tiles), class_="tiles")


def _compared_tiles(compared: ComparedProfiles) -> Markup:
    before, after = compared.before, compared.after
    good = "good" if (compared.speedup or 0) > 1 else "bad"
    tiles = (
        (time_text(before.model_us), "a run before", ""),
        (time_text(after.model_us), "a run after", ""),
        (f"{figure(compared.speedup, '.2f')}x", "as fast", good),
        (time_text(before.lost_us), "lost before", ""),
        (time_text(after.lost_us), "lost after", ""),
        (f"{len(before.operators)} \u2192 {len(after.operators)}", "operators", ""),
    )
    return element("section", *(_tile(*tile) for tile in tiles), class_="tiles")


def _tile(number: str, words: str, kind: str) -> Markup:
    class_ = f"tile {kind}" if kind else "tile"
    return element("div", element("b", number), element("span", words), class_=class_)


def _doubts(compared: ComparedProfiles) -> Iterator[Markup]:
    if compared.doubts:
        items = (element("li", doubt) for doubt in compared.doubts)
        yield _section("Not to be compared", element("ul", *items), class_="problems")


# ---- drawings ----


def _roofline(
    profile: ProfiledModel, links: dict[str, str], before: Sequence[OperatorProfile] = ()
) -> Markup:
    names = [("least", "half of the machine's best or more"), ("lost", "less")]
    if before:
        names.append(("before", "before (hollow)"))
    drawn = roofline(profile.operators, profile.peak, links, before)
    about = "Each point is an operator, its area the time it takes; it leads to its row."
    return _section("Roofline", element("p", about), _scrolled(drawn, "roofline"), key(names))


def _network(profile: ProfiledModel, links: dict[str, str]) -> Markup:
    drawn = draw_network(profile.operators, links)
    names = [("h0", "loses nothing"), ("h1", ""), ("h2", ""), ("h3", ""), ("h4", "")]
    names.append(("h5", "as much as the worst"))
    box = element(
        "div", drawn, class_="tall", tabindex="0", role="region", aria_label="graph of the model"
    )
    return _section("Graph by lost time", box, key(names))


# ---- tables ----


def _operators(profile: ProfiledModel) -> Markup:
    places = {operator.name: at for at, operator in enumerate(profile.operators)}
    heads = ("operator", "computes", "result", "us", "lost us", "of peak", "GF/s", "GB/s")
    rows = (
        element("tr", *_operator_cells(operator), id=f"op-{places[operator.name]}")
        for operator in profile.by_lost_time()
    )
    table = _table((*heads, "bound by", "warm us", "threads"), rows, numbers=range(3, 8))
    return element(
        "div", _section("Operators by lost time", _scrolled(table, "operators")), id="operators"
    )


def _operator_cells(operator: OperatorProfile) -> Iterator[Markup]:
    more = operator.op_names[1:_MOST_NAMES]
    rest = len(operator.op_names) - 1 - len(more)
    small = ", ".join(more) + (f" and {rest} more" if rest > 0 else "")
    yield element(
        "td",
        operator.op_names[0] if operator.op_names else operator.name,
        element("small", small) if small else "",
        class_="names",
    )
    yield element("td", operator.kind)
    yield element("td", result_text(operator))
    yield _number(operator.median_us, ".1f")
    yield _number(operator.lost_us, ".1f")
    share = operator.peak_share
    yield _number(None if share is None else 100 * share, ".0f", " %")
    yield _number(operator.gflops_per_s, ".1f")
    yield _number(operator.gbytes_per_s, ".1f")
    yield element("td", operator.bound.value if operator.work is not None else "-")
    yield _number(operator.warm_us, ".1f")
    yield _number(operator.best_threads, "d")


def _changes(compared: ComparedProfiles) -> Markup:
    rows = (
        element(
            "tr",
            element("td", names_text(one), class_="names"),
            element("td", one.kind),
            _number(one.before_us if one.before else None, ".1f"),
            _number(one.after_us if one.after else None, ".1f"),
            _number(one.speedup, ".2f", "x"),
        )
        for one in compared.operators
    )
    heads = ("nodes", "compute", "before us", "after us", "speed-up")
    table = _table(heads, rows, numbers=range(2, 5))
    return _section("What has changed", _scrolled(table, "changes"))


def _threads(profile: ProfiledModel) -> Iterator[Markup]:
    if profile.best_threads is None:
        return
    best = [operator.best_threads for operator in profile.operators]
    rows = (
        element(
            "tr",
            element("td", str(threads)),
            _number(us, ".1f"),
            _number(float(best.count(threads)), ".0f"),
        )
        for threads, us in sorted(profile.model_us_by_threads.items())
    )
    heads = ("threads", "us a run", "operators that are fastest with them")
    yield _section("Threads that pay", _scrolled(_table(heads, rows, range(1, 3)), "threads"))


def _fusion(fusion: Sequence[FusionLimit] | None) -> Iterator[Markup]:
    if fusion is None:
        return
    rows = (
        element(
            "tr",
            element("td", one.fusion_class),
            element("td", ", ".join(one.op_names), class_="names"),
            element("td", one.stop.value),
            element("td", f"{one.stopped_at} ({one.stopped_type})" if one.stopped_at else "-"),
            _number(float(one.without_limits), ".0f"),
            element("td", here(one)),
        )
        for one in sorted(fusion, key=lambda one: not one.stop.is_limit)
    )
    heads = ("class", "nodes", "ended by", "at", "nodes with O1", "here")
    table = _table(heads, rows, range(4, 5))
    yield _section("AOE's fusion limits", _scrolled(table, "fusions"))


def _table(heads: Sequence[str], rows: Iterable[Markup], numbers: range) -> Markup:
    head = (
        element("th", name, class_="right" if at in numbers else False, scope="col")
        for at, name in enumerate(heads)
    )
    return element("table", element("thead", element("tr", *head)), element("tbody", *rows))


def _number(value: float | None, form: str, unit: str = "") -> Markup:
    if value is None:
        return element("td", "-", class_="right", data_sort="")
    return element("td", f"{value:{form}}{unit}", class_="right", data_sort=f"{value}")


def _scrolled(content: Markup, name: str) -> Markup:
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=name)


def _section(title: str, *content: str | Markup, class_: str | bool = False) -> Markup:
    return element("section", element("h2", title), *content, class_=class_)


def _footer(profile: ProfiledModel) -> Markup:
    levels = ", ".join(
        f"{level.bytes_per_us / 1e3:.0f} GB/s ({level.name})" for level in profile.peak.levels
    )
    counters = profile.counters
    counted = counters.reason and f"no hardware counters: {counters.reason}"
    if not counted:
        counted = ", ".join(f"{name} {count:.3g}" for name, count in counters.per_run.items())
    versions = ", ".join(f"{name} {number}" for name, number in sorted(profile.versions.items()))
    lines = (
        f"The machine at its best: {profile.peak.flops_per_us / 1e3:.0f} GF/s, {levels}.",
        f"Counters of a run: {counted}.",
        versions,
    )
    return element("footer", join(element("div", line) for line in lines))
