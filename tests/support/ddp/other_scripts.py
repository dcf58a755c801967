"""Training scripts as people write them: what is special about each is its name.

Every one trains on data of its own rank, and ends with a digest of all it has computed.
"""

from __future__ import annotations

from textwrap import dedent

_HEAD = """
import contextlib, hashlib, sys
import torch, torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

steps = int(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
torch.manual_seed(0)
losses = []


def layers(*widths, end=nn.Identity):
    made = []
    for wide, narrow in zip(widths, widths[1:]):
        made += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*made[:-1], end())


def own_data():
    torch.manual_seed(100 + rank)


def train(ddp, optimizer, loss_of, after=lambda step: None):
    own_data()
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(ddp, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        after(step)


def square(ddp, step):
    return ddp(torch.randn(6, 32)).square().mean()

"""

_END = """

digest = hashlib.sha256(repr(losses).encode())
for module in trained:
    for name, value in module.state_dict().items():
        digest.update(name.encode() + value.detach().double().numpy().tobytes())
open(f"digest_{rank}", "w").write(digest.hexdigest())
dist.destroy_process_group()
"""

_BODIES: dict[str, str] = {
    "accumulation": """
        ddp = DDP(layers(32, 64, 64, 16))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        own_data()
        for step in range(steps):
            context = ddp.no_sync() if step % 4 != 3 else contextlib.nullcontext()
            with context:
                loss = square(ddp, step) / 4
                loss.backward()
            losses.append(loss.item())
            if step % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
        trained = [ddp]
    """,
    "unused parameters": """
        class Branches(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem = layers(32, 64, 32)
                self.left, self.right = nn.Linear(32, 16), nn.Linear(32, 16)

            def forward(self, value, left):
                return (self.left if left else self.right)(self.stem(value))

        ddp = DDP(Branches(), find_unused_parameters=True)
        train(
            ddp,
            torch.optim.Adam(ddp.parameters()),
            lambda ddp, step: ddp(torch.randn(6, 32), (step + rank) % 3 == 0).square().mean(),
        )
        trained = [ddp]
    """,
    "frozen parameters": """
        net = layers(32, 64, 64, 16)
        for parameter in net[0].parameters():
            parameter.requires_grad = False
        ddp = DDP(net)
        train(ddp, torch.optim.SGD([p for p in ddp.parameters() if p.requires_grad], 0.1), square)
        trained = [ddp]
    """,
    "shared parameters": """
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(50, 32)
                self.body = layers(32, 64, 32)
                self.out = nn.Linear(32, 50, bias=False)
                self.out.weight = self.words.weight

            def forward(self, words):
                return self.out(self.body(self.words(words)))

        def loss_of(ddp, step):
            words = torch.randint(0, 50, (4, 9))
            return F.cross_entropy(ddp(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())

        ddp = DDP(Tied())
        train(ddp, torch.optim.AdamW(ddp.parameters(), lr=1e-3), loss_of)
        trained = [ddp]
    """,
    "float16": """
        ddp = DDP(layers(32, 64, 64, 16).half())
        train(
            ddp,
            torch.optim.SGD(ddp.parameters(), lr=0.01),
            lambda ddp, step: ddp(torch.randn(6, 32).half()).float().square().mean(),
        )
        trained = [ddp]
    """,
    "autocast": """
        ddp = DDP(layers(32, 64, 64, 16))

        def loss_of(ddp, step):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return ddp(torch.randn(6, 32)).float().square().mean()

        train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.05), loss_of)
        trained = [ddp]
    """,
    "GAN with two wrappers": """
        maker, judge = DDP(layers(8, 32, 32)), DDP(layers(32, 32, 1))
        both = [torch.optim.Adam(each.parameters(), lr=1e-3) for each in (maker, judge)]
        own_data()
        for step in range(steps):
            real, made = torch.randn(6, 32) + 2, maker(torch.randn(6, 8))
            both[1].zero_grad()
            guesses = judge(torch.cat([real, made.detach()]))
            wanted = torch.cat([torch.ones(6, 1), torch.zeros(6, 1)])
            judged = F.binary_cross_entropy_with_logits(guesses, wanted)
            judged.backward()
            both[1].step()
            both[0].zero_grad()
            fooled = F.binary_cross_entropy_with_logits(judge(made), torch.ones(6, 1))
            fooled.backward()
            both[0].step()
            losses += [judged.item(), fooled.item()]
        trained = [maker, judge]
    """,
    "compile": """
        ddp = DDP(layers(32, 64, 64, 16))
        compiled = torch.compile(ddp, backend="aot_eager")
        train(compiled, torch.optim.SGD(ddp.parameters(), lr=0.05), square)
        trained = [ddp]
    """,
    "static graph": """
        ddp = DDP(layers(32, 64, 64, 16), static_graph=True)
        train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9), square)
        trained = [ddp]
    """,
    "evaluation in between": """
        ddp = DDP(layers(32, 64, 64, 16))

        def evaluate(step):
            if step % 20 == 19:
                ddp.eval()
                with torch.no_grad():
                    losses.append(ddp(torch.randn(3, 32)).mean().item())
                ddp.train()

        train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.05), square, evaluate)
        trained = [ddp]
    """,
    "gradients that stay": """
        ddp = DDP(layers(32, 64, 64, 16), gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        own_data()
        for step in range(steps):
            optimizer.zero_grad(set_to_none=False)
            loss = square(ddp, step)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        trained = [ddp]
    """,
    "dropout and checkpoints": """
        from torch.utils.checkpoint import checkpoint

        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList(
                    nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(2)
                )

            def forward(self, value):
                for block in self.blocks:
                    value = checkpoint(block, value, use_reentrant=False)
                return value

        ddp = DDP(Encoder())
        train(
            ddp,
            torch.optim.AdamW(ddp.parameters(), lr=1e-3),
            lambda ddp, step: ddp(torch.randn(2, 6, 32)).square().mean(),
        )
        trained = [ddp]
    """,
    "batch normalisation": """
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
        )
        ddp = DDP(net)
        train(
            ddp,
            torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9, nesterov=True),
            lambda ddp, step: ddp(torch.randn(4, 3, 9, 9)).square().mean(),
        )
        trained = [ddp]
    """,
    "sparse gradients": """
        class Bag(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.EmbeddingBag(60, 32, sparse=True)
                self.out = layers(32, 32, 4)

            def forward(self, words):
                return self.out(self.words(words))

        ddp = DDP(Bag())
        train(
            ddp,
            torch.optim.SGD(ddp.parameters(), lr=0.05),
            lambda ddp, step: ddp(torch.randint(0, 60, (5, 7))).square().mean(),
        )
        trained = [ddp]
    """,
    "hook of float16": """
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        ddp = DDP(layers(32, 64, 64, 16))
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
        train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.05), square)
        trained = [ddp]
    """,
    "steps that are left out": """
        ddp = DDP(layers(32, 64, 64, 16))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        own_data()
        for step in range(steps):
            optimizer.zero_grad()
            loss = square(ddp, step)
            losses.append(loss.item())
            if step % 7 == 3:  # a bad batch
                continue
            loss.backward()
            optimizer.step()
        trained = [ddp]
    """,
    "saved and loaded": """
        import io

        ddp = DDP(layers(32, 64, 64, 16))
        optimizer = torch.optim.Adam(ddp.parameters())
        kept = io.BytesIO()

        def save_and_load(step):
            if step == steps // 3:
                torch.save([ddp.state_dict(), optimizer.state_dict()], kept)
            if step == steps // 2:
                kept.seek(0)
                weights, state = torch.load(kept)
                ddp.load_state_dict(weights)
                optimizer.load_state_dict(state)

        train(ddp, optimizer, square, save_and_load)
        trained = [ddp]
    """,
}
SCRIPTS: dict[str, str] = {name: _HEAD + dedent(body) + _END for name, body in _BODIES.items()}
"""Text of each script by what is special about it; its argument is how many steps it trains."""
