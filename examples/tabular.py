"""Tables: a multilayer perceptron on made-up data. Needs `pip install scikit-learn`, for the data."""

import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lates


def make_splits() -> list[TensorDataset]:
    """Training split, hold-out and test set, features scaled by the first of them."""
    rows, labels = make_classification(
        9000, n_features=20, n_informative=10, n_classes=6, flip_y=0.02, class_sep=1.0, random_state=0
    )
    train_x, rest_x, train_y, rest_y = train_test_split(rows, labels, train_size=5000, random_state=0)
    held_x, test_x, held_y, test_y = train_test_split(rest_x, rest_y, train_size=2000, random_state=0)
    scale = StandardScaler().fit(train_x).transform
    pairs = (train_x, train_y), (held_x, held_y), (test_x, test_y)
    return [TensorDataset(torch.tensor(scale(x)).float(), torch.tensor(y)) for x, y in pairs]


def train_network(rows: Tensor, labels: Tensor) -> nn.Module:
    layers = [(20, 128), (128, 128), (128, 128)]
    hidden = [nn.Sequential(nn.Linear(*sizes), nn.ReLU()) for sizes in layers]
    network = nn.Sequential(*hidden, nn.Linear(128, 6))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(25):
        for chosen in torch.randperm(len(labels)).split(100):
            loss = nn.functional.cross_entropy(network(rows[chosen]), labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network.eval()


def main() -> None:
    torch.manual_seed(0)
    train, holdout, test = make_splits()
    network = train_network(*train.tensors)
    train_loader, holdout_loader = DataLoader(train, batch_size=500), DataLoader(holdout, batch_size=500)
    temperature = lates.calibrate(network, holdout=holdout_loader, blocks=[])
    calibrated = lates.calibrate(network, train=train_loader, holdout=holdout_loader, budget=0.1)
    print(calibrated, "\n")

    rows, labels = test.tensors
    for name, model in {"network": network, "temperature": temperature, "LATES": calibrated}.items():
        with torch.no_grad():
            measured = lates.metrics.summary(model(rows), labels)
        print(f"{name:<12} nll {measured['nll']:.3f}  accuracy {measured['accuracy']:.3f}  ece {measured['ece']:.3f}")


if __name__ == "__main__":
    main()
