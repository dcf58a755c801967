"""From raw results to what tables and the picture show."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from networks.registry import NETWORKS
from runtimes.registry import BASELINE

from aoe.measurement import PairedSamples, SpeedupEstimate, estimate_speedup

FLOAT32 = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFigure:
    """One runtime on one network."""

    title: str  # Of the runtime
    precision: str  # In what it computes
    failure: str = ""  # Why there are no figures; empty if there are
    # Speed-up over ONNX Runtime; None where either has no figures.
    ratio: SpeedupEstimate | None = None
    call_ms: float = 0.0  # Median over the rounds of the median call; 0 without figures
    error: float | None = None  # Largest difference from float64, as a share of the largest value
    cosine: float | None = None  # Least cosine similarity of an output with that in float64
    # Multiply-adds a second over those the machine can make in float32; None where the roof was not
    # measured.
    roof_share: float | None = None
    facts: Mapping[str, Any]  # What the runtime said of itself


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFigures:
    """One network on one number of threads."""

    title: str  # Of the network
    threads: int  # For every runtime
    multiply_adds: int  # Of one run
    peers: Mapping[str, PeerFigure]  # By name; empty if the network could not be prepared
    failure: str  # Why it could not; empty if it could
    others: tuple[float, ...]  # Shares of the machine other processes had, one for every turn
    engine: str = ""  # Digest of the engine its record names, empty if it names none


def figures_of(document: Mapping[str, Any]) -> list[NetworkFigures]:
    """Return the figures of every record, in the order of the registry of networks."""
    order = {name: number for number, name in enumerate(NETWORKS)}
    records = [record for record in document["records"] if record["network"] in order]
    records.sort(key=lambda record: (record["threads"], order[record["network"]]))
    return [_network(record) for record in records]


def geometric_mean(rows: Iterable[NetworkFigures], peer: str) -> tuple[float, int] | None:
    """Return the geometric mean of a runtime's ratios and their number; None without any."""
    found = [row.peers[peer].ratio for row in rows if peer in row.peers]
    logs = [math.log(ratio.median) for ratio in found if ratio is not None]
    return (math.exp(sum(logs) / len(logs)), len(logs)) if logs else None


def shared_rows(rows: Iterable[NetworkFigures], names: Collection[str]) -> list[NetworkFigures]:
    """Return the rows on which all these runtimes have a figure: means over others mislead.

    A runtime without any figure at all counts for nothing.
    """
    found = list(rows)
    having = [{name for name in names if _has_figure(row, name)} for row in found]
    known = set().union(*having)
    return [row for row, has in zip(found, having, strict=True) if known and has == known]


def _has_figure(row: NetworkFigures, name: str) -> bool:
    return name in row.peers and row.peers[name].ratio is not None


def peer_names(rows: Sequence[NetworkFigures], *, is_float32: bool) -> dict[str, str]:
    """Return names and titles of the runtimes of one kind of precision, the baseline apart."""
    return {
        name: figure.title
        for row in rows
        for name, figure in row.peers.items()
        if name != BASELINE and (figure.precision == FLOAT32) is is_float32
    }


def _network(record: Mapping[str, Any]) -> NetworkFigures:
    baseline = record["peers"].get(BASELINE, {}).get("median_us", [])
    roofs = record.get("roof_multiply_adds_per_s", [])
    work = record.get("facts", {}).get("multiply_adds", 0)
    roof = work / median(roofs) if roofs else None
    rows = record["peers"].values()
    return NetworkFigures(
        title=NETWORKS[record["network"]].title,
        threads=record["threads"],
        multiply_adds=work,
        peers={name: _peer(row, baseline, roof) for name, row in record["peers"].items()},
        failure=record.get("failure", ""),
        others=tuple(share for row in rows for share in row.get("others", ())),
        engine=record.get("engine", ""),
    )


def _peer(row: Mapping[str, Any], baseline: Sequence[float], roof_s: float | None) -> PeerFigure:
    """Return one figure; rounds are paired, and who had fewer is paired with the first ones."""
    samples = tuple(row.get("median_us", ()))
    pairs = PairedSamples(tuple(baseline[: len(samples)]), samples[: len(baseline)])
    call_us = median(samples) if samples else 0.0
    return PeerFigure(
        title=row["title"],
        precision=row["precision"],
        failure=row.get("failure", ""),
        ratio=estimate_speedup(pairs) if pairs.tuned_us else None,
        call_ms=call_us / 1e3,
        error=row.get("errors", {}).get("largest"),
        cosine=row.get("errors", {}).get("cosine"),
        roof_share=roof_s * 1e6 / call_us if roof_s is not None and samples else None,
        facts=row.get("facts", {}),
    )
