"""What pages about profiles are built of: heads, tiles, tables, the roofline, the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aoe.profiling.figures import OperatorProfile, ProfiledModel
from aoe.report.profiling.charts import key, roofline
from aoe.report.profiling.network import draw_network
from aoebank import Markup, element, join, plural

_MOST_NAMES = 6


def page_header(title: str, words: str) -> Markup:
    """Return the head of a page."""
    return element("header", element("h1", title), element("p", words))


def subtitle(profile: ProfiledModel) -> str:
    """Return what a profile was measured on."""
    return (
        f"{profile.cpu_model} ({profile.soc_version}), {plural(profile.threads, 'thread')}, "
        f"{plural(profile.runs, 'run')} under ONNX Runtime's profiler"
    )


def skip_link(words: str, href: str) -> Markup:
    """Return the way past what stands in front, for a keyboard."""
    return element("a", words, href=href, class_="skip")


def tiles(found: Iterable[tuple[str, str, str]]) -> Markup:
    """Return figures with what they are; the third is a class: bad, good, note or none."""
    drawn = (
        element(
            "div",
            element("b", number),
            element("span", words),
            class_=f"tile {kind}" if kind else "tile",
        )
        for number, words, kind in found
    )
    return element("section", *drawn, class_="tiles")


def section(title: str, *content: str | Markup, class_: str | bool = False) -> Markup:
    """Return a card of a page."""
    return element("section", element("h2", title), *content, class_=class_)


def scrolled(content: Markup, name: str) -> Markup:
    """Return a box that scrolls sideways, with the keyboard as well."""
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=name)


def table(heads: Sequence[str], rows: Iterable[Markup], numbers: range) -> Markup:
    """Return a table; `numbers` are the columns of figures."""
    head = (
        element("th", name, class_="right" if at in numbers else False, scope="col")
        for at, name in enumerate(heads)
    )
    return element("table", element("thead", element("tr", *head)), element("tbody", *rows))


def number_cell(value: float | None, form: str, unit: str = "") -> Markup:
    """Return the cell of a figure, which sorts as such; a dash for none."""
    if value is None:
        return element("td", "-", class_="right", data_sort="")
    return element("td", f"{value:{form}}{unit}", class_="right", data_sort=f"{value}")


def names_cell(operator: OperatorProfile) -> Markup:
    """Return the cell of the nodes an operator computes, or of its own name."""
    more = operator.op_names[1:_MOST_NAMES]
    rest = len(operator.op_names) - 1 - len(more)
    small = ", ".join(more) + (f" and {rest} more" if rest > 0 else "")
    name = operator.op_names[0] if operator.op_names else operator.name
    return element("td", name, element("small", small) if small else "", class_="names")


def roofline_section(
    profile: ProfiledModel, links: Mapping[str, str], before: Sequence[OperatorProfile] = ()
) -> Markup:
    """Return the roofline of a profile; operators of `before` are hollow."""
    names = [("least", "half of the machine's best or more"), ("lost", "less")]
    if before:
        names.append(("before", "before (hollow)"))
    drawn = roofline(profile.operators, profile.peak, links, before)
    about = "Each point is an operator, its area the time it takes; it leads to its row."
    return section("Roofline", element("p", about), scrolled(drawn, "roofline"), key(names))


def network_section(profile: ProfiledModel, links: Mapping[str, str]) -> Markup:
    """Return the graph of a profile, coloured by lost time."""
    drawn = draw_network(profile.operators, links)
    names = [("h0", "loses nothing"), ("h1", ""), ("h2", ""), ("h3", ""), ("h4", "")]
    names.append(("h5", "as much as the worst"))
    box = element(
        "div", drawn, class_="tall", tabindex="0", role="region", aria_label="graph of the model"
    )
    return section("Graph by lost time", box, key(names))


def page_footer(profile: ProfiledModel) -> Markup:
    """Return what the machine can do, what was counted, and with which versions."""
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
