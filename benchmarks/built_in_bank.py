"""Make the built-in bank of the machine this runs on: tune networks, keep what is proven well.

    python benchmarks/built_in_bank.py --bank DIR [--networks zfnet512 ...] [--seconds 240]

Each network is tuned into the bank at DIR; a second run goes on from there, and `--networks` with
nothing behind it only picks. A record is put into the package (`aoe/bank/built_in/<soc_version>`)
if the lower end of the interval of its speed-up is at least `--at-least`, far above what a record
needs in a bank of one's own (1.03): on another machine of the kind it was never measured. Samples
stay out of the side-car, the interval is in it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

import aoe
from aoe.bank.built_in import VARIABLE, packaged_root
from aoe.testing.networks import NETWORKS, shipped_network
from aoebank import Bank, Event, Provenance

TUNED = ("zfnet512", "inception_v1", "densenet121", "shufflenet")
"""Networks with operators far from the roofline; without AlexNet, which `aoe demo` tunes."""
AT_LEAST = 1.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune, pick, say how much was put into the package."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bank", type=Path, required=True, help="bank the networks are tuned into")
    parser.add_argument("--networks", nargs="*", default=TUNED, choices=list(NETWORKS))
    parser.add_argument("--seconds", type=float, default=240.0, help="time limit of a network")
    parser.add_argument("--at-least", type=float, default=AT_LEAST, help="speed-up to be proven")
    parser.add_argument("--into", type=Path, default=packaged_root(), help="root to put it in")
    options = parser.parse_args(arguments)
    os.environ[VARIABLE] = "off"  # what is in the package already is to be found again
    for name in options.networks:
        tune(name, options.bank, options.seconds)
    for file, records in pick(options.bank, options.into, options.at_least):
        print(f"{file}: {records} records")
    return 0


def tune(name: str, bank: Path, seconds: float) -> None:
    """Tune a network of the onnx package into a bank, whatever else the machine does."""
    with TemporaryDirectory() as folder:
        model = Path(folder) / f"{name}.onnx"
        onnx.save(shipped_network(name), model)
        tuned = aoe.tune(
            model,
            bank=bank,
            output=Path(folder) / "out",
            tuning_time_limit_s=seconds,
            accept_busy=True,
        )
        print(f"{name}: {tuned.speedup:.3f}x", file=sys.stderr, flush=True)


def pick(source: Path, target: Path, at_least: float) -> Iterator[tuple[Path, int]]:
    """Copy the records proven to be so much faster than the default, with their provenance.

    Yields:
        Each file written, and how many records were put into it.
    """
    bank, built_in = Bank(source), Bank(target)
    for file in bank.iter_files():
        proven = dict(_proven(bank, file, at_least))
        records = [record for record in bank.iter_records(file) if record.key in proven]
        if not records:
            continue
        written = target / file.relative_to(source)
        written.parent.mkdir(parents=True, exist_ok=True)
        built_in.put(written, records)
        known = {entry.key for entry in built_in.iter_provenance(written)}
        new = [proven[record.key] for record in records if record.key not in known]
        built_in.append_provenance(written, new)
        yield written, len(records)


def _proven(bank: Bank, file: Path, at_least: float) -> Iterator[tuple[str, Provenance]]:
    """Yield the last change of each record that is fast enough, by its key."""
    changes = (e for e in bank.iter_provenance(file) if e.event in (Event.ADD, Event.UPDATE))
    for key, entry in {entry.key: entry for entry in changes}.items():
        if (entry.speedup_low or 0.0) >= at_least:
            yield key, replace(entry, baseline_us=(), tuned_us=(), event=Event.ADD)


if __name__ == "__main__":
    raise SystemExit(main())
