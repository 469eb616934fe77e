"""A real problem with signal, shared by the tests: a small residual network, trained for seconds until it is too sure."""

import copy
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import lates

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CLASSES, SIDE, CHANNELS = 10, 8, 3
BROWSERLESS = "browser tests skipped"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background lets them, and all programs that they start, ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Tests are quick on few rows, often without a signal, of which the library warns."""
    few_rows = (
        r"\d+ of \d+ classes have no (hold-out|training) row",
        r"All [\d,]+ hold-out rows are classified",
        "The network is right on",
        r"budget=[\d.e-]+ leaves most of the gain",
        "The budget allows",
        "No probe got a vote",
    )
    for warning in ("The weights are fitted to", "All weights are 0", *few_rows):
        config.addinivalue_line("filterwarnings", f"ignore:{warning}:UserWarning")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for all browser tests that were skipped: how to get a browser."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    browserless = [reason.removeprefix("Skipped: ") for reason in reasons if BROWSERLESS in reason]
    if browserless:
        terminalreporter.write_line(f"{len(browserless)} {browserless[0]}", yellow=True)


class Residual(nn.Module):
    """x -> relu(shortcut(x) + conv(dropout(relu(conv(x))))), batch norm after each convolution."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.drop = nn.Dropout(0.1)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        same = stride == 1 and channels_in == channels
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.drop(functional.relu(self.norm1(self.conv1(x))))
        return functional.relu(self.shortcut(x) + self.norm2(self.conv2(inner)))


class ResidualNetwork(nn.Module):
    """Blocks "stages.0" … "stages.2", then a last one that stands alone, which `list_blocks` counts to the head."""

    def __init__(self, width: int = 12, logits: int = CLASSES) -> None:
        super().__init__()
        self.stem = nn.Conv2d(CHANNELS, width, 3, 1, 1)
        self.stages = nn.Sequential(
            Residual(width, width, 1),
            Residual(width, width, 1),
            Residual(width, 2 * width, 2),
        )
        self.last = Residual(2 * width, 2 * width, 1)
        self.fc = nn.Linear(2 * width, logits)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.last(self.stages(functional.relu(self.stem(images)))).mean((2, 3)))


@dataclass(frozen=True)
class Problem:
    """A trained network with its splits; `train` and `holdout` can be passed to `lates.calibrate` as they are."""

    model: nn.Module
    train: DataLoader
    holdout: DataLoader
    images: Tensor
    labels: Tensor


def draw_patterns(n: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noisy images [n, 3, 8, 8] of one fixed pattern per class, randomly shifted; every eighth label is drawn at random."""
    patterns = torch.randn(classes, CHANNELS, SIDE, SIDE, generator=torch.Generator().manual_seed(1000))
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(classes, (n,), generator=generator)
    shifts = torch.randint(-1, 2, (n, 2), generator=generator).tolist()
    clean = torch.stack([patterns[c].roll(shift, (1, 2)) for c, shift in zip(truth.tolist(), shifts, strict=True)])
    images = clean + 1.5 * torch.randn(clean.shape, generator=generator)
    random_labels = torch.randint(classes, (n,), generator=generator)
    mislabelled = torch.rand(n, generator=generator) < 1 / 8
    return images, torch.where(mislabelled, random_labels, truth)


def loader_of(images: Tensor, labels: Tensor, batch_size: int = 250) -> DataLoader:
    return DataLoader(TensorDataset(images, labels), batch_size=batch_size)


def fit_network(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, seed: int = 0) -> nn.Module:
    """Train by Adam, in place, leaving the global random state as it was; the network comes back in evaluation."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(epochs):
            for batch in torch.randperm(len(labels)).split(125):
                loss = functional.cross_entropy(model(images[batch]), labels[batch])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
    return model.eval()


def make_problem(classes: int, logits: int, train_rows: int, epochs: int, seed: int = 0) -> Problem:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = ResidualNetwork(logits=logits)
    images, labels = draw_patterns(train_rows, classes, seed=1)
    fit_network(model, images, labels, epochs)
    test_images, test_labels = draw_patterns(1000, classes, seed=3)
    return Problem(
        model,
        loader_of(images, labels),
        loader_of(*draw_patterns(1000, classes, seed=2)),
        test_images,
        test_labels,
    )


def calibrate(problem: Problem, **choices: object) -> lates.CalibratedModel:
    """In silence and, unless it is asked for, without views."""
    given = {"train": problem.train, "holdout": problem.holdout, "views": None, "progress": False, **choices}
    return lates.calibrate(problem.model, **given)  # pyright: ignore[reportArgumentType]


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Whatever ran before, a test draws the same from torch's global state, such as the parameters of its networks."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="session")
def problem() -> Problem:
    """Ten classes, an overconfident network."""
    return make_problem(CLASSES, CLASSES, train_rows=1200, epochs=20, seed=2)


@pytest.fixture(scope="session")
def features(problem: Problem) -> tuple[lates.Features, lates.Features]:
    """Of the problem's training split and its hold-out, without views."""
    train = lates.extract(problem.model, problem.train)
    return train, lates.extract(problem.model, problem.holdout, like=train)


@pytest.fixture(scope="session")
def calibrated(problem: Problem) -> lates.CalibratedModel:
    """With a dense probe on every block."""
    return lates.calibrate(problem.model, train=problem.train, holdout=problem.holdout, budget=None, views=None, progress=False)


@pytest.fixture(scope="session")
def ensemble(problem: Problem) -> list[nn.Module]:
    """The problem's network and one that was trained on after a jolt."""
    images, labels = draw_patterns(1200, CLASSES, seed=1)
    other = copy.deepcopy(problem.model)
    with torch.no_grad():
        for place, parameter in enumerate(other.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(place))
            parameter.add_(0.3 * parameter.std(correction=0) * noise)
    return [problem.model, fit_network(other.train(), images, labels, epochs=3)]


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Without one the test is skipped, or fails where $LATES_REQUIRE_BROWSER demands it."""
    from tests.chromium import NoBrowserError, launch

    with ExitStack() as stack:
        try:
            browser = stack.enter_context(launch())
        except NoBrowserError as absence:
            if os.environ.get("LATES_REQUIRE_BROWSER"):
                pytest.fail(f"no browser, which $LATES_REQUIRE_BROWSER demands: {absence}")
            pytest.skip(f"{BROWSERLESS}: {absence}")
        yield browser


@pytest.fixture
def saved(tmp_path: Path, calibrated: lates.CalibratedModel) -> Path:
    path = tmp_path / "network.lates.safetensors"
    calibrated.save(path)
    return path
