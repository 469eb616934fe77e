"""A small network with everything that leaves traces, the loaders to read with it, and the check that nothing was left."""

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lates
from lates import network as network_package
from lates.network import Ensemble, Reading
from lates.runtime import Run

CLASSES = 3


class Network(nn.Module):
    """Convolutions with batch norm, in-place activations and dropout; blocks body.2, body.5, body.9 (rule 2)."""

    def __init__(self, inputs: int = 2, logits: int = CLASSES) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
            nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.5),
        )  # fmt: skip
        self.last = nn.Linear(6, logits)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.body(images))


def network(seed: int = 0, logits: int = CLASSES) -> Network:
    """With random weights and batch-norm statistics."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = Network(logits=logits)
        for _ in range(3):
            model(torch.randn(16, 2, 6, 6))
    return model.eval()


def draw(n: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 2, 6, 6, generator=generator), torch.randint(CLASSES, (n,), generator=generator)


def loader(n: int = 20, batch_size: int = 8, seed: int = 0) -> DataLoader:
    """The last batch is smaller."""
    return DataLoader(TensorDataset(*draw(n, seed)), batch_size=batch_size)


def extract_samples(
    ensemble: Ensemble,
    loader: Iterable[Any],
    blocks: Any = None,
    memory: int | None = None,
    float16: bool = False,
    **options: Any,
) -> list[lates.Features]:
    """All samples in one reading, with options of `Reading`."""
    with Run.start("cpu", memory=memory) as run:
        run = replace(run, float16=float16)
        return network_package.extract_samples(ensemble, loader, Reading(blocks=blocks, **options), run)


def same(a: lates.Features, b: lates.Features) -> bool:
    return (
        list(a.blocks) == list(b.blocks)
        and all(torch.equal(a.blocks[name], b.blocks[name]) for name in a.blocks)
        and all(torch.equal(a.centre[name], b.centre[name]) for name in a.blocks)
        and all(torch.equal(a.deviation[name], b.deviation[name]) for name in a.blocks)
        and torch.equal(a.logits, b.logits)
        and torch.equal(a.labels, b.labels)
        and a.poolings == b.poolings
    )


def fail_after(batches: int) -> Iterable[Any]:
    class Failing:
        def __iter__(self) -> Iterator[Any]:
            for done, batch in enumerate(loader()):
                if done == batches:
                    raise OSError("the disk is gone")
                yield batch

    return Failing()


@contextmanager
def untouched(model: nn.Module, *, generators: bool = True) -> Iterator[None]:
    """Asserts at the end, also after an exception, that nothing about the model or the random state has changed."""

    def state() -> dict[str, Any]:
        parameters = list(model.named_parameters())
        return {
            "modules": [id(part) for part in model.modules()],
            "classes": [type(part) for part in model.modules()],
            "flags": [part.training for part in model.modules()],
            "attributes": [sorted(vars(part)) for part in model.modules()],
            "hooks": [
                {key: dict(value) for key, value in vars(part).items() if "hooks" in key and isinstance(value, dict)}
                for part in model.modules()
            ],
            "tensors": {name: (id(t), t.dtype, t.device, t._version) for name, t in [*parameters, *model.named_buffers()]},
            "values": {name: str(value.tolist()) for name, value in model.state_dict().items()},
            "gradients": {name: (id(p.grad), None if p.grad is None else p.grad.tolist()) for name, p in parameters},
            "frozen": {name: p.requires_grad for name, p in parameters},
            "python": random.getstate(),
            "numpy": [np.asarray(part).tolist() for part in np.random.get_state()],
            "torch": torch.get_rng_state().tolist(),
            "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")),
        }

    for draw_once in (random.random, np.random.rand, lambda: torch.rand(())):
        draw_once()  # so that no generator stands where a seed alone would put it
    before = state()
    try:
        yield
    finally:
        after = state()
        ignored = () if generators else ("python", "numpy", "torch")
        assert [key for key in before if before[key] != after[key] and key not in ignored] == []


def random_rows(n: int, *shape: int, classes: int = 3, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(n, *shape, generator=generator), torch.arange(n) % classes)
