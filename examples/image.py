"""Images: a small convolutional network on Fashion-MNIST, before and after. Needs nothing but lates."""

import torch
from torch import Tensor, nn

import lates
from lates.demo import load_splits


def train_network(images: Tensor, labels: Tensor) -> nn.Module:
    """Trained a few epochs too long, until it is overconfident."""
    network = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        nn.Sequential(nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    for _ in range(8):
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

    temperature = lates.calibrate(network, holdout=splits.holdout.batches, blocks=[])
    calibrated = lates.calibrate(network, train=splits.train.batches, holdout=splits.holdout.batches, budget=0.1)
    print(calibrated, "\n")

    for name, model in {"network": network, "temperature": temperature, "LATES": calibrated}.items():
        with torch.no_grad():
            measured = lates.metrics.summary(model(splits.test.images), splits.test.labels)
        print(f"{name:<12} nll {measured['nll']:.3f}  accuracy {measured['accuracy']:.3f}  ece {measured['ece']:.3f}")


if __name__ == "__main__":
    main()
