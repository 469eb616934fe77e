"""Problems with known answers: member logits and labels whose best weights are known, or known not to exist."""

import numpy as np
import torch
from torch import Tensor


def sharpened(temperature: float, n: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits [n, classes] that are the truth times `temperature`, and labels drawn from the truth."""
    generator = torch.Generator().manual_seed(seed)
    truth = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return temperature * truth, draw_labels(truth, generator)


def two_signals(n: int, classes: int, silent: int, seed: int = 0) -> tuple[list[Tensor], Tensor, Tensor]:
    """Members of which two make the truth, 0.8 · first + 0.5 · head, and `silent` others are noise; and the weights."""
    generator = torch.Generator().manual_seed(seed)
    members = [torch.randn(n, classes, generator=generator, dtype=torch.float64) for _ in range(silent + 2)]
    members[0] *= 2.0
    weights = torch.zeros(silent + 2, dtype=torch.float64)
    weights[0], weights[-1] = 0.8, 0.5
    truth = 0.8 * members[0] + 0.5 * members[-1]
    return members, draw_labels(truth, generator), weights


def noisy_views(n: int, classes: int, members: int, seed: int = 0, sharpness: float = 2.0) -> tuple[list[Tensor], Tensor]:
    """Members that see one truth through noise, the head best, all overconfident: what a network's blocks look like."""
    generator = torch.Generator().manual_seed(seed)
    truth = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    noise = [torch.randn(n, classes, generator=generator, dtype=torch.float64) for _ in range(members)]
    return [sharpness * (truth + (members - k) * noise[k]) for k in range(members)], draw_labels(truth, generator)


def awkward(seed: int) -> tuple[list[Tensor], Tensor]:
    """Few rows and members of every troublesome kind: right everywhere or once, repeated, constant, of any scale."""
    random = np.random.default_rng(seed)
    n, classes, count = int(random.integers(1, 60)), int(random.integers(2, 6)), int(random.integers(1, 7))
    labels = random.integers(0, classes, n)
    right = np.eye(classes)[labels]
    members: list[np.ndarray] = []
    for _ in range(count):
        one_row = (np.arange(n) == random.integers(n))[:, None]
        noise = random.normal(size=(n, classes))
        kinds = [
            noise,
            noise + random.uniform(0, 4) * right,
            noise * one_row,
            right * one_row * random.uniform(0.01, 10),
            right * random.uniform(0, 1, (n, 1)),
            np.round(noise) + 2 * right,
            np.repeat(noise[:, :1], classes, axis=1),
            members[-1] * random.uniform(0.1, 3) if members else -right,
        ]
        members.append(kinds[random.integers(len(kinds))] * 10 ** random.uniform(-3, 3))
    return [torch.from_numpy(member) for member in members], torch.from_numpy(labels)


def dropout_samples(n: int, classes: int, samples: int, seed: int = 0) -> tuple[list[list[Tensor]], Tensor]:
    """Samples of two members each, a probe and a head, that scatter around one truth as MC dropout's do."""
    generator = torch.Generator().manual_seed(seed)
    truth = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)

    def scatter(scale: float) -> Tensor:
        return scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)

    return [[truth + scatter(3.0), truth + scatter(1.5)] for _ in range(samples)], draw_labels(truth, generator)


def draw_labels(truth: Tensor, generator: torch.Generator) -> Tensor:
    return torch.multinomial(truth.softmax(dim=1), 1, generator=generator)[:, 0]
