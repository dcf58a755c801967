"""Make the built-in bank of the machine this runs on: tune networks, keep what is proven well.

    python benchmarks/built_in_bank.py --work DIR [--networks ghostnet ...] [--seconds 150]

One call does all of it: networks of the suite are built (or found in `--prepared`), each is tuned
from nothing into the bank of DIR, and the records whose speed-up is proven are put into the
package, into `aoe/bank/built_in/<soc_version>`, in place of what is there. A call that was ended
goes on with the networks that are left; `--networks` with nothing behind it only picks.

A record gets in if the lower end of the interval of its speed-up is at least `--at-least`, far
above what a record needs in a bank of one's own (1.01): on another machine of the kind it was
never measured. Samples stay out of the side-car; the interval, the conditions and the digest of
the kernel's sources are in it. `README.md` beside the records says when, on what and with which
networks they were made. The machine should have nothing else to do: what a busy one measures is
not decided, and missing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from comparison.prepared import PreparedNetwork
from networks.registry import NETWORKS

import aoe
from aoe.bank.built_in import VARIABLE, packaged_root
from aoe.results.files import write_json, write_text
from aoe.runs.operators.result import OpatResult
from aoebank import Bank, Event, Provenance, plural

TUNED = (
    *("light_zfnet512", "light_inception_v1", "light_inception_v2", "light_densenet121"),
    *("light_shufflenet", "light_squeezenet", "mobilenet_v2", "mobilenet_v3_large"),
    *("efficientnet_b0", "ghostnet", "regnety_008", "densenet121", "convnext_tiny"),
    *("mobilevit_s", "vit_small", "swin_tiny", "bert6", "yolo_silu"),
)
"""Networks with operators far from the roofline; without AlexNet, which `aoe demo` tunes."""
AT_LEAST = 1.2
NOTE = "README.md"
_TUNED = "tuned.json"


def main(
    arguments: Sequence[str] | None = None,
    *,
    prepare: Callable[[str, Path], PreparedNetwork] = PreparedNetwork.make,
    tune_network: Callable[..., dict[str, Any]] | None = None,
) -> int:
    """Tune, pick, say how much was put into the package.

    Args:
        arguments: Of the command line.
        prepare: Builds a network in a folder.
        tune_network: Tunes it into a bank; None for `tune`.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="bank, and what is tuned so far")
    parser.add_argument("--prepared", type=Path, help="built networks; default DIR/networks")
    parser.add_argument("--networks", nargs="*", default=TUNED, choices=list(NETWORKS))
    parser.add_argument("--seconds", type=float, default=150.0, help="time limit of a network")
    parser.add_argument("--at-least", type=float, default=AT_LEAST, help="speed-up to be proven")
    parser.add_argument("--into", type=Path, default=packaged_root(), help="root to put it in")
    parser.add_argument("--accept-busy", action="store_true", help="believe a busy machine")
    options = parser.parse_args(arguments)
    os.environ[VARIABLE] = "off"  # what is in the package already is to be found again
    bank, file = options.work / "bank", options.work / _TUNED
    bank.mkdir(parents=True, exist_ok=True)
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    prepared = options.prepared or options.work / "networks"
    run = tune_network or tune
    for name in options.networks:
        if name not in done:
            model = prepare(name, prepared / name).model
            done[name] = run(name, model, bank, options.seconds, accept_busy=options.accept_busy)
            write_json(file, done)
    written = dict(pick(bank, options.into, options.at_least))
    for target in sorted({path.relative_to(options.into).parts[0] for path in written}):
        write_text(options.into / target / NOTE, note(target, done, written, options.at_least))
    for path, records in written.items():
        print(f"{path}: {plural(records, 'record')}")
    return 0


def tune(
    name: str, model: Path, bank: Path, seconds: float, *, accept_busy: bool = False
) -> dict[str, Any]:
    """Tune a network into a bank, and return what the note says of that."""
    began_s = time.monotonic()
    with TemporaryDirectory() as folder:
        tuned = aoe.tune(
            model,
            bank=bank,
            output=Path(folder) / "out",
            tuning_time_limit=seconds,
            accept_busy=accept_busy,
        ).get(OpatResult)
    load = tuned.validation.comparison.measurement.load
    print(f"{name}: {tuned.speedup:.3f}x", file=sys.stderr, flush=True)
    return {
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "seconds": round(time.monotonic() - began_s),
        "speedup": round(tuned.speedup, 3),
        "given_share": round(load.use.given_share, 3) if load is not None else None,
        "cpu_model": tuned.target.cpu_model,
        "core_num": tuned.target.core_num,
        "versions": dict(tuned.versions),
    }


def pick(source: Path, target: Path, at_least: float) -> Iterator[tuple[Path, int]]:
    """Copy the records proven to be so much faster than the default, with their provenance.

    What is there of the same hardware goes first.

    Yields:
        Each file written, and how many records were put into it.
    """
    bank, built_in, emptied = Bank(source), Bank(target), set()
    for file in bank.iter_files():
        proven = dict(_proven(bank, file, at_least))
        records = [record for record in bank.iter_records(file) if record.key in proven]
        if not records:
            continue
        written = target / file.relative_to(source)
        hardware = target / file.relative_to(source).parts[0]
        if hardware not in emptied:
            emptied.add(hardware)
            shutil.rmtree(hardware, ignore_errors=True)
        written.parent.mkdir(parents=True, exist_ok=True)
        built_in.put(written, records)
        built_in.append_provenance(written, [proven[record.key] for record in records])
        yield written, len(records)


def note(
    target: str, tuned: Mapping[str, Any], written: Mapping[Path, int], at_least: float
) -> str:
    """Return what is written beside the records of a kind of hardware."""
    facts = next(iter(tuned.values()), {})
    versions = ", ".join(f"{name} {number}" for name, number in facts.get("versions", {}).items())
    records = sum(count for path, count in written.items() if target in path.parts)
    rows = [
        f"| {NETWORKS[name].title} | {row['day']} | {row['seconds']} | {row['speedup']:.3f}x | "
        + ("-" if row["given_share"] is None else f"{row['given_share']:.0%}")
        + " |\n"
        for name, row in tuned.items()
    ]
    return (
        f"# Built-in bank for {target}\n\n"
        f"{plural(records, 'record')}, each proven to be {at_least:g}x as fast as the default or "
        f"more (lower end of its interval), for {plural(facts.get('core_num', 0), 'thread')}; "
        f"made by `python benchmarks/built_in_bank.py` on {facts.get('cpu_model', '?')} with "
        f"{versions}.\n\n"
        "| network | tuned on | seconds | whole model | CPU time it got of what it asked for |\n"
        "|---|---|---|---|---|\n" + "".join(rows)
    )


def _proven(bank: Bank, file: Path, at_least: float) -> Iterator[tuple[str, Provenance]]:
    """Yield the last change of each record that is fast enough, by its key."""
    changes = (e for e in bank.iter_provenance(file) if e.event in (Event.ADD, Event.UPDATE))
    for key, entry in {entry.key: entry for entry in changes}.items():
        if (entry.speedup_low or 0.0) >= at_least:
            yield key, replace(entry, baseline_us=(), tuned_us=(), event=Event.ADD)


if __name__ == "__main__":
    raise SystemExit(main())
