"""One step of training: gather, flip, forward, backward, update.

On a GPU the images stay there as uint8, and a step reads its place, and with it its images and its learning rate, from a
counter on the device. It is compiled, captured in a CUDA graph and replayed; the host only says "again".
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from experiments.training.feeds import Feed
from experiments.training.hyperparameters import Hyperparameters, learning_rates

BUFFERS: Mapping[str, Mapping[str, str]] = {
    "sgd": {"momentum": "momentum_buffer"},
    "adamw": {"mean": "exp_avg", "square": "exp_avg_sq", "updates": "step"},
}
"""Optimiser -> what it keeps of each parameter: its name in checkpoints and torch's."""


class TrainingState:
    """The state of one training, and the step that moves it on.

    With loss L(w), decay λ, momentum μ and the step's learning rate η: m ← μ·m + ∇L(w) + λ·w, then w ← w − η·m; with
    Nesterov's momentum w ← w − η·(∇L(w) + λ·w + μ·m). AdamW with torch's defaults but for η and λ.
    """

    def __init__(
        self, hyper: Hyperparameters, network: nn.Module, feed: Feed, steps_per_epoch: int, device: torch.device
    ) -> None:
        self.network, self.feed, self.device = network, feed, device
        self.bfloat16 = device.type == "cuda" or hyper.bfloat16
        self.rates = learning_rates(hyper, steps_per_epoch).float().to(device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.rate = torch.zeros(1, device=device)
        options = {"lr": self.rate, "weight_decay": hyper.weight_decay, "fused": True}
        if hyper.optimiser == "adamw":
            self.optimiser = torch.optim.AdamW(network.parameters(), capturable=device.type == "cuda", **options)
        else:
            rule = {"momentum": hyper.momentum, "nesterov": hyper.nesterov}
            self.optimiser = torch.optim.SGD(network.parameters(), **rule, **options)
        self.buffers = BUFFERS[hyper.optimiser]
        for parameter in network.parameters():
            zeros = {"step": torch.zeros((), dtype=torch.float32, device=device)}
            self.optimiser.state[parameter] = {
                key: zeros.get(key, torch.zeros_like(parameter)) for key in self.buffers.values()
            }
        self.loss = torch.compile(self._loss) if device.type == "cuda" else self._loss
        self.advance = _captured(self._advance) if device.type == "cuda" else self._advance

    def _loss(self) -> Tensor:
        images, labels = self.feed.batch(self.step)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            logits = self.network(images)
        return cross_entropy(logits.float(), labels)

    def _advance(self) -> None:
        torch.index_select(self.rates, 0, self.step, out=self.rate)
        loss = self.loss()
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.loss_sum.add_(loss.detach())
        self.step.add_(1)

    def take_mean_loss(self, steps: int) -> float:
        """The mean loss of an epoch of `steps` steps; the next epoch's sum begins at zero."""
        mean = float(self.loss_sum) / steps
        if not math.isfinite(mean):
            raise FloatingPointError(f"Training diverged: the mean loss of an epoch is {mean}. Lower the learning rate.")
        self.loss_sum.zero_()
        return mean

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a step reads and changes, by name."""
        optimiser = {
            f"{prefix}.{name}": self.optimiser.state[parameter][key]
            for name, parameter in self.network.named_parameters()
            for prefix, key in self.buffers.items()
        }
        network = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        return {**network, **optimiser, "step": self.step, "loss_sum": self.loss_sum}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, tensor in self.tensors().items():
                tensor.copy_(tensors[name])


def _captured(step: Callable[[], None], first_steps: int = 3) -> Callable[[], None]:
    """`step` as a CUDA graph. The first steps run as they are, which compiles and warms up whatever has to be.

    Everything has to run on one stream other than the default, which `train_network` sees to.
    """
    graph = torch.cuda.CUDAGraph()
    done = 0

    def run() -> None:
        nonlocal done
        if done < first_steps:
            step()
        else:
            if done == first_steps:
                with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
                    step()
            graph.replay()
        done += 1

    return run
