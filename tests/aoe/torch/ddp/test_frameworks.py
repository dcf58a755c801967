"""Scripts of Hugging Face Accelerate and of Lightning, as they are: each step seen, same weights.

Skipped where the package is not installed (`pip install accelerate lightning`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from support.ddp.scripts import run_under_aoe

_ACCELERATE = """
import os, sys
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
data = TensorDataset(torch.randn(480, 32), torch.randn(480, 1))
optimizer = torch.optim.Adam(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
model, optimizer, loader, scheduler = accelerator.prepare(
    model, optimizer, DataLoader(data, batch_size=4, shuffle=True), scheduler
)
for inputs, targets in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
own = accelerator.unwrap_model(model)
rank = accelerator.process_index
open(f"weights_{rank}", "w").write(str([p.double().sum().item() for p in own.parameters()]))
accelerator.end_training()
"""

_LIGHTNING = """
import os, sys
import torch
import lightning
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 1))

    def training_step(self, batch, number):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layers(inputs), targets)

    def validation_step(self, batch, number):
        self.log("loss", self.training_step(batch, number), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


lightning.seed_everything(0)
data = TensorDataset(torch.randn(320, 32), torch.randn(320, 1))
net = Net()
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    num_sanity_val_steps=1,
)
trainer.fit(net, DataLoader(data, batch_size=4), DataLoader(data, batch_size=16))
rank = trainer.global_rank
open(f"weights_{rank}", "w").write(str([p.double().sum().item() for p in net.parameters()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "script", "steps"),
    [("accelerate", _ACCELERATE, 30), ("lightning", _LIGHTNING, 80)],
)
def test_script_of_a_framework_is_seen_and_trains_as_it_does_alone(
    tmp_path: Path, package: str, script: str, steps: int
) -> None:
    pytest.importorskip(package)
    tuned = run_under_aoe(tmp_path, script)
    assert tuned.code == 0, tuned.said
    found = re.search(r"ended after (\d+) steps, before tuning was finished", tuned.said[0])
    assert found is not None, tuned.said[0]
    assert steps - 2 <= int(found[1]) <= steps
    weights = [(tmp_path / f"weights_{rank}").read_text() for rank in "01"]
    plain = run_under_aoe(tmp_path, script, tuned=False)
    assert plain.code == 0, plain.said
    assert weights == [(tmp_path / f"weights_{rank}").read_text() for rank in "01"]
