"""A profile, or two of them, as one HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aoe.profiling.comparing import ComparedProfiles
from aoe.profiling.figures import FusionLimit, OperatorProfile, ProfiledModel
from aoe.report.charts import compared_bars, draw_network, kind_bars, roofline
from aoe.report.profiling.text import bound_text, figure, here, names_text, result_text
from aoe.report.quantities import time_text
from aoebank import Markup, element, html_page, join, pages, plural

_MOST_NAMES = 6


def subtitle(profile: ProfiledModel) -> str:
    """Return machine, threads and runs of a profile, in a line."""
    return (
        f"{profile.cpu_model} ({profile.soc_version}), {plural(profile.threads, 'thread')}, "
        f"{plural(profile.runs, 'run')} under ONNX Runtime's profiler"
    )


def skip_link(words: str, href: str) -> Markup:
    """Return the way past what stands in front, for a keyboard."""
    return element("a", words, href=href, class_="skip")


def names_cell(operator: OperatorProfile) -> Markup:
    """Return the cell of the nodes an operator computes, or of its own name."""
    more = operator.op_names[1:_MOST_NAMES]
    rest = len(operator.op_names) - 1 - len(more)
    small = ", ".join(more) + (f" and {rest} more" if rest > 0 else "")
    name = operator.op_names[0] if operator.op_names else operator.name
    return element("td", name, element("small", small) if small else "", class_="names")


def peak_cell(operator: OperatorProfile) -> Markup:
    """Return the cell of an operator's share of the machine's best."""
    share = operator.peak_share
    return pages.number_cell(None if share is None else 100 * share, ".0f", " %")


def roofline_section(
    profile: ProfiledModel, links: Mapping[str, str], before: Sequence[OperatorProfile] = ()
) -> Markup:
    """Return the roofline of a profile; operators of `before` are hollow."""
    names = [("least", "half of the machine's best or more"), ("lost", "less")]
    if before:
        names.append(("before", "before (hollow)"))
    drawn = roofline(profile.operators, profile.peak, links, before)
    about = "Each point is an operator, its area the time it takes; it leads to its row."
    box = element("div", drawn, class_="scroll", tabindex="0", role="region", aria_label="roofline")
    return pages.section("Roofline", element("p", about), box, pages.legend(names))


def network_section(profile: ProfiledModel, links: Mapping[str, str]) -> Markup:
    """Return the graph of a profile, coloured by lost time."""
    drawn = draw_network(profile.operators, links)
    names = [("h0", "loses nothing"), ("h1", ""), ("h2", ""), ("h3", ""), ("h4", "")]
    names.append(("h5", "as much as the worst"))
    box = element(
        "div", drawn, class_="tall", tabindex="0", role="region", aria_label="graph of the model"
    )
    return pages.section("Graph by lost time", box, pages.legend(names))


def page_footer(profile: ProfiledModel) -> Markup:
    """Return the machine's rates, the counters, and the versions."""
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


def render_profile(profile: ProfiledModel) -> str:
    """Return the page of one profile."""
    links = _links(profile)
    return html_page(
        f"{profile.model}: profile",
        skip_link("to the table of operators", "#operators"),
        pages.page_header(profile.model, subtitle(profile)),
        _tiles(profile),
        pages.section("Time by kind of operator", kind_bars(profile.kinds())),
        roofline_section(profile, links),
        network_section(profile, links),
        _operators(profile),
        *_threads(profile),
        *_fusion(profile.fusion),
        page_footer(profile),
    )


def render_comparison(compared: ComparedProfiles) -> str:
    """Return the page of two profiles; the graph and the table of operators are of the second."""
    before, after = compared.before, compared.after
    links = _links(after)
    return html_page(
        f"{before.model} and {after.model}: profiles",
        skip_link("to the table of operators", "#operators"),
        pages.page_header(f"{before.model} \u2192 {after.model}", subtitle(after)),
        _compared_tiles(compared),
        *_doubts(compared),
        pages.section("Time by kind of operator", compared_bars(compared.kinds())),
        roofline_section(after, links, before.operators),
        _changes(compared),
        network_section(after, links),
        _operators(after),
        page_footer(after),
    )


def _links(profile: ProfiledModel) -> dict[str, str]:
    return {operator.name: f"#op-{at}" for at, operator in enumerate(profile.operators)}


# ---- tiles ----


def _tiles(profile: ProfiledModel) -> Markup:
    share = profile.lost_us / (profile.operators_us or 1.0)
    found = [
        (time_text(profile.model_us), "a run (median)", ""),
        (time_text(profile.model_min_us), "shortest run", ""),
        (time_text(profile.lost_us), f"lost, {share:.0%} of the operators", "bad"),
        (str(len(profile.operators)), "operators", ""),
        (f"{profile.peak.flops_per_us / 1e3:.0f} GF/s", "the machine at its best", ""),
    ]
    if profile.best_threads is not None:
        found.append((str(profile.best_threads), "threads are fastest", "note"))
    return pages.tiles(found)


def _compared_tiles(compared: ComparedProfiles) -> Markup:
    before, after = compared.before, compared.after
    good = "good" if (compared.speedup or 0) > 1 else "bad"
    found = (
        (time_text(before.model_us), "a run before", ""),
        (time_text(after.model_us), "a run after", ""),
        (f"{figure(compared.speedup, '.2f')}x", "as fast", good),
        (time_text(before.lost_us), "lost before", ""),
        (time_text(after.lost_us), "lost after", ""),
        (f"{len(before.operators)} \u2192 {len(after.operators)}", "operators", ""),
    )
    return pages.tiles(found)


def _doubts(compared: ComparedProfiles) -> Iterator[Markup]:
    if compared.doubts:
        yield pages.section("Not to be compared", pages.listing(compared.doubts), class_="problems")


# ---- tables ----


def _operators(profile: ProfiledModel) -> Markup:
    places = {operator.name: at for at, operator in enumerate(profile.operators)}
    table = pages.columns(
        profile.by_lost_time(),
        ("operator", "", names_cell),
        ("computes", "", lambda one: one.kind),
        ("result", "", result_text),
        ("us", "r", lambda one: _us_cell(one.median_us)),
        ("lost us", "r", lambda one: _us_cell(one.lost_us)),
        ("of peak", "r", peak_cell),
        ("GF/s", "r", lambda one: pages.number_cell(one.gflops_per_s, ".1f")),
        ("GB/s", "r", lambda one: pages.number_cell(one.gbytes_per_s, ".1f")),
        ("bound by", "", bound_text),
        ("warm us", "", lambda one: _us_cell(one.warm_us)),
        ("threads", "", lambda one: pages.number_cell(one.best_threads, "d")),
        name="operators",
        ids=lambda one: f"op-{places[one.name]}",
    )
    return element("div", pages.section("Operators by lost time", table), id="operators")


def _changes(compared: ComparedProfiles) -> Markup:
    table = pages.columns(
        compared.operators,
        ("nodes", "", lambda one: element("td", names_text(one), class_="names")),
        ("compute", "", lambda one: one.kind),
        ("before us", "r", lambda one: _us_cell(one.before_us if one.before else None)),
        ("after us", "r", lambda one: _us_cell(one.after_us if one.after else None)),
        ("speed-up", "r", lambda one: pages.number_cell(one.speedup, ".2f", "x")),
        name="changes",
    )
    return pages.section("What has changed", table)


def _us_cell(time_us: float | None) -> Markup:
    return pages.number_cell(time_us, ".1f")


def _threads(profile: ProfiledModel) -> Iterator[Markup]:
    if profile.best_threads is None:
        return
    best = [operator.best_threads for operator in profile.operators]
    table = pages.columns(
        sorted(profile.model_us_by_threads.items()),
        ("threads", "", lambda one: element("td", str(one[0]))),
        ("us a run", "r", lambda one: _us_cell(one[1])),
        (
            "operators that are fastest with them",
            "r",
            lambda one: pages.number_cell(float(best.count(one[0])), ".0f"),
        ),
        name="threads",
    )
    yield pages.section("Threads that pay", table)


def _fusion(fusion: Sequence[FusionLimit] | None) -> Iterator[Markup]:
    if fusion is None:
        return
    table = pages.columns(
        sorted(fusion, key=lambda one: not one.stop.is_limit),
        ("class", "", lambda one: element("td", one.fusion_class)),
        ("nodes", "", lambda one: element("td", ", ".join(one.op_names), class_="names")),
        ("ended by", "", lambda one: one.stop.value),
        ("at", "", lambda one: f"{one.stopped_at} ({one.stopped_type})" if one.stopped_at else "-"),
        ("nodes with O1", "r", lambda one: pages.number_cell(float(one.without_limits), ".0f")),
        ("here", "", here),
        name="fusions",
    )
    yield pages.section("AOE's fusion limits", table)
