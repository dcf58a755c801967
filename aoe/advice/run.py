"""`advise_file`: a model in, what loses time and what was found to help out.

profile -> low performers and their causes -> proposals, each an edited copy -> those that touch
enough lost time are tried, those about most of it first
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from aoe.advice.actions import ACTIONS
from aoe.advice.causes import (
    LEAST_SHARE,
    LowPerformer,
    find_channels,
    find_low_performers,
    find_without_kernel,
    room_of,
)
from aoe.advice.precision import PRECISION_ACTION, try_precision
from aoe.advice.proposals import Proposal, find_recomputed
from aoe.advice.threads import THREADS_ACTION, thread_policy, try_threads
from aoe.advice.trying import ActionTrials, TriedAction, without_shared
from aoe.device.protocol import Device
from aoe.device.toolchain import Toolchain
from aoe.execute.idle_gate import QuietPairs
from aoe.execute.runner import Runner
from aoe.folders.scratch import ScratchFolder
from aoe.folders.turns import Turns
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.preparation import prepared
from aoe.ort.inputs import ModelInputs
from aoe.ort.static_shapes import infer_tensors
from aoe.profiling.figures import ProfiledModel
from aoe.profiling.run import ProfileSettings, open_model, profile_subject
from aoe.profiling.subject import ProfileSubject
from aoe.settings import accept_busy, lock_path
from aoe.target import Target
from aoe.tuner.policies import final_policy
from aoe.tuner.precision.settings import KEEP_FLOAT32, PrecisionSettings
from aoebank import plural

MOST_TRIED = 12
OpenRunner = Callable[[Device, Target, Toolchain, Turns], Runner]
ProfileOf = Callable[[ProfileSubject, ProfileSettings, Path, Callable[[str], None]], ProfiledModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAdvice:
    """Advice for a model."""

    profile: ProfiledModel  # Where its time goes
    low: tuple[LowPerformer, ...]  # Operators that lose time, those that lose most first
    tried: tuple[TriedAction, ...]  # Actions, in the order in which they were tried
    not_tried: tuple[str, ...]  # Names of actions that match and were not asked for
    of_untuned: bool = False  # True if actions were tried on the untuned model an `.om` holds

    @property
    def worth_tuning(self) -> tuple[str, ...]:
        """Nodes of the user's model in low performers AOE has kernels for, most lost time first."""
        names = (name for one in self.low if one.has_kernel for name in one.operator.op_names)
        return tuple(dict.fromkeys(names))


def advise_file(
    settings: ProfileSettings,
    *,
    most: int = MOST_TRIED,
    actions: Collection[str] = (),
    precision: PrecisionSettings = KEEP_FLOAT32,
    on_event: Callable[[str], None] = lambda text: None,
    profile_of: ProfileOf = profile_subject,
    open_runner: OpenRunner = Runner,
) -> ModelAdvice:
    """Return where a model loses time, and the actions that were shown to help on this machine.

    Args:
        settings: Of the profile; fusions are asked for in any case.
        most: Actions that are tried at most, those about most lost time first.
        actions: Names of those that are tried; none for all.
        precision: What the user allows: a lower one is tried by operator tuning.
        on_event: Is told what makes figures doubtful, and what is tried.
        profile_of: Profiles the model, as `profile_subject` does.
        open_runner: Opens the worker that compares a copy with the model.

    Raises:
        AoeError: the model cannot be read, or not be run.
    """

    def warn(text: str) -> None:
        on_event(f"warning: {text}")

    with ScratchFolder("advise") as scratch:
        opened, trials, tuned = (scratch / name for name in ("model", "trials", "tuned"))
        for folder in (opened, trials, tuned):
            folder.mkdir()
        subject = open_model(settings, opened, warn)
        profile = profile_of(subject, settings, opened, warn)
        target = subject.device.describe(profile.threads)
        low = find_low_performers(
            profile,
            target,
            block=subject.device.channel_block(),
            without_kernel=find_without_kernel(subject.graph, subject.inlined),
            channels=find_channels(subject.imported),
            recomputed=_recomputed(subject),
        )
        precision.check(target)
        wanted = _Wanted(most=most, names=frozenset(actions))
        tried, left = _try_all(
            subject, settings, profile, target, trials, wanted, on_event, open_runner
        )
        if wanted.has(PRECISION_ACTION) and precision.mode.lowered:
            on_event(f"trying --precision_mode={precision.mode.value}")
            found = try_precision(settings, precision, tuned, room_us=profile.lost_us)
            tried = (*tried, found)
    return ModelAdvice(
        profile=profile,
        low=low,
        tried=tried,
        not_tried=left,
        of_untuned=subject.core_num is not None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Actions to try: how many, and of which names."""

    most: int
    names: frozenset[str]

    def has(self, action: str) -> bool:
        return self.most > 0 and (not self.names or action in self.names)


def _recomputed(subject: ProfileSubject) -> frozenset[str]:
    """Return the running nodes that compute the same from constants in every run."""
    indices = set(find_recomputed(subject.graph))
    parts = subject.inlined.parts.items()
    return frozenset(name for name, own in parts if own and indices.issuperset(own))


def _try_all(
    subject: ProfileSubject,
    settings: ProfileSettings,
    profile: ProfiledModel,
    target: Target,
    directory: Path,
    wanted: _Wanted,
    on_event: Callable[[str], None],
    open_runner: OpenRunner,
) -> tuple[tuple[TriedAction, ...], tuple[str, ...]]:
    model = prepared(subject.imported)
    tensors = infer_tensors(model, subject.device.open_session)
    graph = ModelGraph(model, tensors, block=subject.device.channel_block())
    proposals = [
        without_shared(found, graph.initializers)
        for action in ACTIONS
        for found in action.propose(graph, target)
        if wanted.has(found.action)
    ]
    least_share = 0.0 if wanted.names else LEAST_SHARE  # who asks for one by name gets it
    ranked = rank_proposals(proposals, profile, least_share=least_share)
    most = wanted.most
    inputs = ModelInputs(sets=settings.inputs, seed=settings.seed)
    is_busy_accepted = accept_busy(settings.env)
    policy = final_policy(target.core_num, accept_busy=is_busy_accepted)
    turns = Turns(lock_path(settings.env), subject.device.cores(), on_event)
    tried: list[TriedAction] = []
    best = profile.best_threads
    if wanted.has(THREADS_ACTION) and best is not None and best < profile.threads:
        on_event(f"trying {plural(best, 'thread')}")
        with turns.measuring():
            tried.append(
                try_threads(
                    lambda threads: subject.bound_run(inputs, threads=threads),
                    QuietPairs(usage=subject.device.usage),
                    thread_policy(profile.threads, accept_busy=is_busy_accepted),
                    fewer=best,
                    room_us=profile.lost_us,
                )
            )
    if ranked[:most]:
        with open_runner(subject.device, target, Toolchain(command=()), turns) as runner:
            trials = ActionTrials(model, runner, policy, inputs, directory)
            for proposal, room_us in ranked[:most]:
                on_event(f"trying {proposal.action}")
                tried.append(trials.try_proposal(proposal, room_us))
            trials.close()
    return tuple(tried), tuple(proposal.action for proposal, _ in ranked[most:])


def rank_proposals(
    proposals: Sequence[Proposal], profile: ProfiledModel, *, least_share: float = LEAST_SHARE
) -> list[tuple[Proposal, float]]:
    """Return proposals with the lost time of the operators they are about, in us, most first.

    Args:
        proposals: All there are.
        profile: Of the model.
        least_share: Of the time of all operators; those about less are left out. With 0 none is,
            nor are those of operators that lose nothing.
    """
    owners = {name: operator for operator in profile.operators for name in operator.op_names}
    least_us = least_share * profile.operators_us
    found = []
    for proposal in proposals:
        about = {owners[name].name: owners[name] for name in proposal.op_names if name in owners}
        room_us = sum(room_of(operator) for operator in about.values())
        if room_us >= least_us and (room_us > 0 or least_share == 0):
            found.append((proposal, room_us))
    found.sort(key=lambda item: -item[1])
    return found
