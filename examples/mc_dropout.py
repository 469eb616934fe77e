"""MC dropout: ten predictions with dropout on, their mean calibrated as a whole. Needs nothing but lates."""

import torch
from torch import Tensor, nn

import lates
from lates.demo import load_splits


def train_network(images: Tensor, labels: Tensor) -> nn.Module:
    def block(before: int, after: int) -> nn.Module:
        return nn.Sequential(nn.Linear(before, after), nn.ReLU(), nn.Dropout(0.3))

    network = nn.Sequential(nn.Flatten(), block(784, 128), block(128, 128), nn.Linear(128, 10))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(20):
        for rows in torch.randperm(len(labels)).split(100):
            loss = nn.functional.cross_entropy(network(images[rows]), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network.eval()


def main() -> None:
    torch.manual_seed(0)
    splits = load_splits().shrink(2)
    network = train_network(splits.train.images, splits.train.labels)

    sampled = lates.mc_dropout(network, samples=10)
    temperature = lates.calibrate(sampled, holdout=splits.holdout.batches, blocks=[])
    calibrated = lates.calibrate(sampled, train=splits.train.batches, holdout=splits.holdout.batches, budget=0.1)
    print(calibrated, "\n")

    models = {"one pass": network, "MC dropout": sampled, "+ temperature": temperature, "+ LATES": calibrated}
    for name, model in models.items():
        with torch.no_grad():
            measured = lates.metrics.summary(model(splits.test.images), splits.test.labels)
        print(f"{name:<14} nll {measured['nll']:.3f}  accuracy {measured['accuracy']:.3f}  ece {measured['ece']:.3f}")


if __name__ == "__main__":
    main()
