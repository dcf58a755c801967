"""Trains a model file in the processes of a group, so that its gradients can be tuned."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from aoe.entry.input_shapes import parse_input_shape
from aoe.entry.outputs import cut_at_outputs
from aoe.entry.protocol import ModelSource
from aoe.entry.registry import find_entry
from aoe.errors import ModelImportError, OptionError
from aoe.gradients.training import Training
from aoe.graph.protos import copied
from aoe.ort.inputs import specs_of_proto
from aoe.ort.sessions import made_up_array
from aoe.torch.ddp.gradients import reduced_training
from aoe.torch.model_files.conversion import trainable_model

T = TypeVar("T")

_RATE = 0.0
"""Of the optimizer: its steps cost what they cost, and weights do not run away on made-up data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingModel:
    """A model file that is trained for as long as its gradients are tuned, for `aoe.tune`.

    Its loss is differentiated by PyTorch, in `DistributedDataParallel` with gloo, on made-up data.
    Every process of the group runs it, as `torchrun` starts them.
    """

    path: Path  # The model
    loss_name: str | None = None  # Output that is the loss; None for the only output
    framework: int | None = 5  # AOE's framework number
    weight: Path | None = None  # Second file, for frameworks that keep the weights apart
    input_shape: str | None = None  # Text of `--input_shape`, or None
    seed: int = 0  # Of the made-up data
    # Is told what the model was taken for, in the first process.
    on_event: Callable[[str], object] = field(default=lambda text: None)
    # Environment variables, for entries that run a program.
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.name

    def run(self, tune: Callable[[Training], T]) -> tuple[T, int]:
        """Train the model until `tune` is done; return the result of `tune`, and 0.

        Raises:
            ModelImportError: it cannot be read, converted or trained, or has no such loss.
            EngineNotInstalledError: there is no `onnx2torch`.
            OptionError: the group has one process only.
        """
        proto, name = self._proto()
        where = f"--model={self.path}"
        model = trainable_model(proto, name, where)
        rng = np.random.default_rng(self.seed)
        inputs = [torch.from_numpy(made_up_array(one, rng)) for one in specs_of_proto(proto)]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="onnx2torch")  # no part of this package
            unused = _keep_trained(model.module, inputs, where)
            with _group(), _training(model.module, inputs) as training:
                if training.is_first:
                    self._on_event(proto, training, unused, model.caveat)
                return tune(training), 0

    def _proto(self) -> tuple[onnx.ModelProto, str]:
        """Return the model with its loss as the only output, and its name."""
        source = ModelSource(
            path=self.path,
            shapes=parse_input_shape(self.input_shape),
            weight=self.weight,
            env=self.env,
        )
        imported = find_entry(self.framework, source).load(source)
        proto = copied(imported.proto)
        outputs = {value.name: value for value in proto.graph.output}
        loss_name = self.loss_name or next(iter(outputs))
        if loss_name not in outputs or (self.loss_name is None and len(outputs) > 1):
            raise OptionError(
                "--loss_name",
                "no output of the model is called so"
                if self.loss_name
                else "the model has several outputs, and nothing says which is its loss",
                got=self.loss_name,
                expected=" or ".join(outputs),
                hint=f"--loss_name={next(iter(outputs))}",
            )
        cut_at_outputs(proto, (loss_name,))
        return proto, imported.name

    def _on_event(
        self, proto: onnx.ModelProto, training: Training, unused: int, caveat: str
    ) -> None:
        loss = proto.graph.output[0]
        if loss.type.tensor_type.shape.dim:
            self.on_event(f"{loss.name} is no scalar: its mean is the loss")
        if unused:
            self.on_event(f"{unused} parameters get no gradient and are left out")
        same = "that of a script which trains these parameters in this order"
        self.on_event(
            f"modelhash {training.model_hash}, of {len(training.sizes_bytes)} parameters: "
            + (f"may not be that of the script, {caveat}" if caveat else same)
        )


@contextmanager
def _group() -> Iterator[None]:
    """Have the process group the environment describes, or the one there is.

    Raises:
        OptionError: it describes none.
    """
    if dist.is_initialized():
        yield
        return
    try:
        dist.init_process_group("gloo")
    except ValueError as error:  # one of the variables is missing
        raise OptionError(
            "process group", f"cannot be joined: {error}", hint="unset RANK, or start with torchrun"
        ) from error
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def _training(module: Any, inputs: list[torch.Tensor]) -> Iterator[Training]:
    """Train a module that returns its loss, in all processes of the group."""
    ddp = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=_RATE)

    def step() -> None:
        optimizer.zero_grad()
        ddp(*inputs).backward()
        optimizer.step()

    with reduced_training(ddp, step, timeout_s=None) as training:
        yield training


def _keep_trained(module: Any, inputs: list[torch.Tensor], where: str) -> int:
    """Run one step; take parameters out of training that get no gradient, and count them.

    Raises:
        ModelImportError: it fails, or no parameter gets one.
    """
    module.train()
    hint = "tune the training script itself: aoe --job_type=4 --script TRAIN.py"
    try:
        loss = module(*inputs)
        if loss.requires_grad:
            loss.backward()
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        raise ModelImportError(where, f"cannot be trained: {error}", hint=hint) from error
    without = [parameter for parameter in module.parameters() if parameter.grad is None]
    if len(without) == len(list(module.parameters())):
        raise ModelImportError(
            where,
            "nothing in it can be trained",
            got="a loss that depends on no parameter by a gradient",
            hint="give the output that is the loss: --loss_name=NAME",
        )
    for parameter in without:
        parameter.requires_grad_(False)
    module.zero_grad()
    return len(without)
