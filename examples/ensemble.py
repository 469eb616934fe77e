"""An ensemble: three networks from three seeds, the mean of their probabilities calibrated as a whole. Needs only lates."""

import torch
from torch import Tensor, nn

import lates
from lates.demo import load_splits


def train_network(images: Tensor, labels: Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 12, 5, stride=2), nn.ReLU()),
        nn.Sequential(nn.Conv2d(12, 24, 5, stride=2), nn.ReLU()),
        nn.Flatten(),
        nn.Linear(24 * 4 * 4, 10),
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(6):
        for rows in torch.randperm(len(labels)).split(100):
            loss = nn.functional.cross_entropy(network(images[rows]), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network.eval()


def main() -> None:
    splits = load_splits().shrink(3)
    networks = [train_network(splits.train.images, splits.train.labels, seed) for seed in range(3)]

    temperature = lates.calibrate(networks, holdout=splits.holdout.batches, blocks=[])
    calibrated = lates.calibrate(networks, train=splits.train.batches, holdout=splits.holdout.batches, budget=0.1)
    print(calibrated, "\n")

    with torch.no_grad():
        mean = torch.stack([network(splits.test.images).softmax(1) for network in networks]).mean(0)
        logits = {
            "one network": networks[0](splits.test.images),
            "ensemble": mean.log(),
            "+ temperatures": temperature(splits.test.images),
            "+ LATES": calibrated(splits.test.images),
        }
    for name, values in logits.items():
        measured = lates.metrics.summary(values, splits.test.labels)
        print(f"{name:<14} nll {measured['nll']:.3f}  accuracy {measured['accuracy']:.3f}  ece {measured['ece']:.3f}")


if __name__ == "__main__":
    main()
