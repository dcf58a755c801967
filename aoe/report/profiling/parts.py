"""What pages about profiles have in common: the roofline, the graph, head and foot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aoe.profiling.figures import OperatorProfile, ProfiledModel
from aoe.report.profiling.charts import roofline
from aoe.report.profiling.network import draw_network
from aoebank import Markup, element, join, pages, plural

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
