"""A fit must never harm: few, separable, class-poor or repeated hold-outs, and single rows with wild logits."""

import functools
import warnings
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits, load_wine
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import lates
from tests.problems import draw_labels

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
TRAIN, TEST = slice(700), slice(1200, None)


@functools.cache
def digits(seed: int) -> tuple[Tensor, Tensor]:
    images, labels = map(torch.tensor, load_digits(return_X_y=True))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return images.float()[order] / 16, labels[order]


@functools.cache
def trained_on_digits(seed: int) -> nn.Module:
    images, labels = digits(seed)
    return trained(images[TRAIN], labels[TRAIN], seed)


def trained(inputs: Tensor, labels: Tensor, seed: int) -> nn.Module:
    generator, width = torch.Generator().manual_seed(seed), 64
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Linear(inputs.shape[1], width), nn.Linear(width, width), nn.Linear(width, int(labels.max()) + 1)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        for batch in torch.randperm(len(labels), generator=generator).split(64):
            optimiser.zero_grad()
            cross_entropy(model(inputs[batch]), labels[batch]).backward()
            optimiser.step()
    return model.eval()


def loader(inputs: Tensor, labels: Tensor) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(inputs, labels), 256)


def calibrated(model: nn.Module, train: tuple[Tensor, Tensor], holdout: tuple[Tensor, Tensor]) -> lates.CalibratedModel:
    return lates.calibrate(model, train=loader(*train), holdout=loader(*holdout), budget=None, progress=False)


def log_loss(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float(cross_entropy(model(inputs).double(), labels))


def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float((model(inputs).argmax(1) == labels).double().mean())


@pytest.mark.parametrize("rows", [20, 50, 120, 400, "separable"])
def test_calibrating_digits_never_raises_the_test_log_loss(rows: int | str) -> None:
    rises, count = {"temperature": 0.0, "stack": 0.0}, 0
    for seed in range(5):
        (images, labels), model = digits(seed), trained_on_digits(seed)
        holdout = images[700:1200], labels[700:1200]
        if rows == "separable":
            right = model(holdout[0]).argmax(1) == holdout[1]
            holdout = holdout[0][right][:400], holdout[1][right][:400]
        else:
            holdout = holdout[0][:rows], holdout[1][:rows]
        count, test, before = len(holdout[1]), (images[TEST], labels[TEST]), log_loss(model, images[TEST], labels[TEST])
        temperature = lates.calibrate(model, holdout=loader(*holdout), blocks=[], progress=False)
        stack = calibrated(model, (images[TRAIN], labels[TRAIN]), holdout)
        rises["temperature"] += (log_loss(temperature, *test) - before) / 5
        rises["stack"] += (log_loss(stack, *test) - before) / 5
    assert max(rises.values()) < 0.01 + 1 / (2 * count), rises


@pytest.mark.parametrize("sharpness", [1 / 3, 1.0, 3.0], ids=["underconfident", "calibrated", "overconfident"])
@pytest.mark.parametrize("rows", [20, 50, 200])
def test_stack_of_any_network_costs_at_most_what_one_parameter_must(rows: int, sharpness: float) -> None:
    rises = []
    for seed in range(48):
        generator, classes = torch.Generator().manual_seed(seed), (2, 10, 50)[seed % 3]
        truth = (1 + seed % 2) * torch.randn(rows + 1000, classes, generator=generator, dtype=torch.float64)
        noise = torch.randn(3, *truth.shape, generator=generator, dtype=torch.float64)
        members, labels = torch.stack([*(truth / 2 + 2 * noise), sharpness * truth]), draw_labels(truth, generator)
        stack = lates.fit_stack(list(members[:, :rows]), labels[:rows])
        network, stacked = members[-1, rows:], torch.einsum("k,kic->ic", stack.weights, members[:, rows:])
        probabilities = truth[rows:].softmax(1)
        rises.append(float(cross_entropy(stacked, probabilities) - cross_entropy(network, probabilities)))
    assert sum(rises) / len(rises) < 0.01 + 1 / (2 * rows)


def test_tiny_wine_holdout_leaves_the_network_useful() -> None:
    inputs, labels = map(torch.tensor, load_wine(return_X_y=True))
    inputs = inputs.float()
    rise = 0.0
    for seed in range(10):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
        train, holdout, test = order[:80], order[80:129], order[129:]
        scaled = (inputs - inputs[train].mean(0)) / inputs[train].std(0)
        model = trained(scaled[train], labels[train], seed)
        fitted = calibrated(model, (scaled[train], labels[train]), (scaled[holdout], labels[holdout]))
        rise += (log_loss(fitted, scaled[test], labels[test]) - log_loss(model, scaled[test], labels[test])) / 10
    assert rise < 0.01 + 1 / (2 * 49)


def test_one_row_with_wild_logits_does_not_decide() -> None:
    images, labels = digits(0)
    scaled = (images - images[TRAIN].mean(0)) / (images[TRAIN].std(0) + 1e-6)
    model = trained(scaled[TRAIN], labels[TRAIN], 0)
    wild = scaled[700:1100].clone()
    wild[7] *= 1e5
    with pytest.warns(UserWarning, match="left out"):
        fitted = calibrated(model, (scaled[TRAIN], labels[TRAIN]), (wild, labels[700:1100]))
    assert accuracy(fitted, scaled[TEST], labels[TEST]) > accuracy(model, scaled[TEST], labels[TEST]) - 0.01


def test_probes_leave_classes_they_never_saw_to_the_head(tmp_path: Path) -> None:
    (images, labels), model = digits(0), trained_on_digits(0)
    seen, test = labels < 7, (images[TEST], labels[TEST])
    train, holdout = seen[TRAIN].nonzero()[:, 0], 700 + seen[700:1200].nonzero()[:, 0]
    with pytest.warns(UserWarning, match=r"3 of 10 classes have no training row \(7, 8, 9\)"):
        fitted = calibrated(model, (images[train], labels[train]), (images[holdout], labels[holdout]))
    assert fitted.weights["1"] > 0
    assert accuracy(fitted, *test) > accuracy(model, *test) - 0.005
    assert log_loss(fitted, *test) < log_loss(model, *test)
    fitted.save(tmp_path / "a.safetensors")
    torch.testing.assert_close(lates.load(tmp_path / "a.safetensors", model)(images), fitted(images))
    features = lates.extract(model, loader(*test))
    torch.testing.assert_close(fitted.logits_of(features), fitted(images[TEST]))


@pytest.mark.parametrize("repeated", [False, True])
def test_holdout_of_training_rows_in_another_dataset_is_warned_of(repeated: bool) -> None:
    (images, labels), model = digits(0), trained_on_digits(0)
    holdout = torch.arange(500) if repeated else torch.arange(700, 1200)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calibrated(model, (images[TRAIN], labels[TRAIN]), (images[holdout].clone(), labels[holdout]))
    assert any("500 of 500 hold-out rows have the inputs of training rows" in str(w.message) for w in caught) == repeated
