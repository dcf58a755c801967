"""The operators of a training script are tuned while it runs, and leave results.

`AOE_MODE=2 python -m aoe.torch train.py` says them on standard error, which is not the script's;
`aoe --job_type=2 --script train.py` reports them as its answer.
"""

from __future__ import annotations

import atexit
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from aoe.errors import OutputError
from aoe.folders.scratch import ScratchFolder
from aoe.results.files import timestamp_of
from aoe.settings import environment, with_bank
from aoe.torch.scripts.compiling import MakeGraph, MakeSteps, ScriptTraining
from aoe.torch.scripts.copies import tune_copies
from aoe.torch.scripts.loading import load_training
from aoe.torch.scripts.regions import TunedGraph, is_first_rank, is_in_group
from aoe.torch.scripts.remembering import RememberedCall
from aoe.torch.scripts.result_folder import TrainingBanks, recorded_parts, reuse_of_training
from aoe.torch.scripts.results import TrainingPlaces, lines_of, write_results
from aoe.torch.scripts.whole_steps import COMPARED_STEPS, SETTLED_STEPS, WholeSteps
from aoe.tuner.reuse.earlier import EarlierResult, open_earlier
from aoe.tuner.reuse.kinds import ReuseSummary
from aoebank import AoebankError, say


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedOperators:
    """What became of the operators of a training script."""

    places: TrainingPlaces  # Where the results are
    lines: tuple[str, ...]  # On its graphs, its optimizers, and what is not to be had
    document: Mapping[str, Any]  # As in `training.json`; empty where that could not be written


class TunedScript:
    """Tunes what a script trains, and leaves results; a context manager around the script.

    Attributes:
        first_steps: Steps of the script after which all is as it stays.
        is_over: True once the script was run.
        result: What became of it, once the script is over; in the first process of a group.

    Args:
        script: Name of the script.
        options: Of `torch.compile(..., backend="aoe")`.
        output: Directory for the results; None for AOE's workspace.
        base_result: An earlier result, of which only what has changed is tuned; None for none.
        env: Environment variables.
        cwd: Directory relative paths are taken from.
        make_graph: Makes what tunes a graph.
        make_steps: Makes what compares whole steps; None to compare none.
        speaks: True to say the result as soon as the script is over.

    Raises:
        OptionError: an unknown option or value, or there is no earlier result.
        OutputError: `ASCEND_WORK_PATH` cannot be used.
    """

    first_steps: ClassVar = SETTLED_STEPS + COMPARED_STEPS

    def __init__(
        self,
        script: str,
        options: Mapping[str, Any],
        *,
        output: Path | None = None,
        base_result: Path | None = None,
        env: Mapping[str, str],
        cwd: Path,
        make_graph: MakeGraph = TunedGraph,
        make_steps: MakeSteps | None = WholeSteps,
        speaks: bool = True,
    ) -> None:
        stamp = timestamp_of(datetime.now(UTC))
        self.places = TrainingPlaces.of(script, stamp, output=output, env=env, cwd=cwd)
        self._base: EarlierResult | None = None
        if base_result is not None:
            self._scratch = ScratchFolder("base")  # goes with this object
            self._base = open_earlier(cwd / base_result, self._scratch.path)
            for damaged in self._base.damaged if is_first_rank() else ():
                say(str(damaged))
        self.training = ScriptTraining(
            options, make_graph=make_graph, base=self._base, make_steps=make_steps
        )
        self.is_over = False
        self.result: TunedOperators | None = None
        self._speaks = speaks
        self._said: set[str] = set()
        self._began_s = time.monotonic()

    def __enter__(self) -> TunedScript:
        self.training.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        self.training.close()
        if is_first_rank():
            self.conclude()
            if self._speaks:
                say("Aoe process finished")

    def end_comparison(self) -> None:
        """Compare whole steps no further: somebody else measures steps from here on."""
        if self.training.steps is not None:
            self.training.steps.close()

    def conclude(self) -> None:
        """Write the results, and say what came of it; a second time, what is new."""
        training, steps = self.training, self.training.steps
        found = (training.graphs, training.optimizers.found, training.left)
        gain = None if steps is None else steps.gain
        reuse = self._reuse()
        seconds = time.monotonic() - self._began_s
        document: Mapping[str, Any] = {}
        try:
            document = write_results(self.places, *found, seconds, reuse, gain)
        except (OutputError, AoebankError) as error:  # the training itself is done
            warnings.warn(f"aoe: {error}", stacklevel=2)
        lines = tuple(lines_of(*found, reuse, "" if steps is None else steps.line))
        self.result = TunedOperators(places=self.places, lines=lines, document=document)
        if self._speaks:
            places = f"results in {self.places.results}, bank {self.places.bank}"
            for line in (*lines, places) if document else lines:
                if line not in self._said:
                    say(f"aoe: {line}")
                self._said.add(line)

    def use_from_here(self, options: Mapping[str, Any]) -> None:
        """Train the script's own modules as their copies were tuned, and compare its steps.

        Args:
            options: Of `torch.compile(..., backend="aoe")`, as they were tuned with.
        """

        def on_compared() -> None:
            self.training.steps, self.training.optimizers = loaded.steps, loaded.optimizers
            if not loaded.has_tuned():  # slower: PyTorch's again
                for graph in self.training.graphs:
                    graph.is_used = False
            self.conclude()

        loaded = load_training(
            {**options, "lookup_only": True}, make_steps=WholeSteps, on_compared=on_compared
        )
        atexit.register(loaded.close)  # a script that ends before has some of the pairs

    def _reuse(self) -> ReuseSummary | None:
        """Return the regions reused from the earlier result and the others; None without one."""
        if self._base is None or self.places.bank is None:
            return None
        banks = TrainingBanks(self.places.bank, self._base)
        return reuse_of_training(recorded_parts(self.training.graphs), banks, self._base)


def tune_training_of(
    calls: Sequence[RememberedCall], options: Mapping[str, Any], output: Path, name: str
) -> None:
    """Tune the training of calls on copies of their modules, leave results, and use them.

    Args:
        calls: Of a script; those without gradients are passed over.
        options: Of `torch.compile(..., backend="aoe")`.
        output: Directory for the results.
        name: Of the run.
    """
    if not any(call.wants_gradients for call in calls):
        return
    env = environment()
    if (bank := options.get("bank")) is not None:
        env = with_bank(env, Path(bank))
    tuned = TunedScript(name, options, output=output, env=env, cwd=Path.cwd(), make_steps=None)
    tune_copies(tuned.training, calls, lambda text: warnings.warn(f"aoe: {text}", stacklevel=2))
    tuned.conclude()
    if any(graph.is_used for graph in tuned.training.graphs) and not is_in_group():
        tuned.use_from_here(options)
