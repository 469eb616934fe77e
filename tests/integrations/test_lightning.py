"""Lightning: a LightningModule is calibrated at the end of `fit`, saved, and logged by whatever logger the trainer has."""

import copy
import csv
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.nn import functional

import lates
from lates.export import export_program
from lates.integrations.lightning import CalibrateAfterFit
from lates.integrations.loggers import scalars
from tests.conftest import ResidualNetwork, draw_patterns, loader_of

TRAIN, HOLDOUT = draw_patterns(500, 10, seed=1), draw_patterns(400, 10, seed=2)


class Classifier(LightningModule):
    def __init__(self, network: nn.Module | None = None) -> None:
        super().__init__()
        self.network = ResidualNetwork(width=6) if network is None else network

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        return functional.cross_entropy(self(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


@pytest.fixture(autouse=True)
def without_advice() -> Iterator[None]:
    """Of Lightning, on loaders and loggers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fitted(callback: CalibrateAfterFit, folder: Path) -> Classifier:
    """A module fitted for two epochs by a trainer with this callback, which logs to metrics.csv in `folder`."""
    module = Classifier()
    trainer = Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=CSVLogger(str(folder), name="", version=""),
        callbacks=[callback],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader_of(*TRAIN))
    return module


def quiet(**choices: Any) -> Any:
    return partial(lates.calibrate, views=None, budget=None, progress=False, **choices)


def test_callback_calibrates_saves_and_logs_when_fit_ends(tmp_path: Path) -> None:
    path = tmp_path / "module.lates.safetensors"
    callback = CalibrateAfterFit(train=loader_of(*TRAIN), holdout=loader_of(*HOLDOUT), path=path, calibration=quiet())
    assert callback.calibrated is None
    module = fitted(callback, tmp_path)
    calibrated = callback.calibrated
    assert calibrated is not None
    assert list(calibrated.weights) == [*(f"network.stages.{place}" for place in range(3)), "head"]
    assert calibrated.fit.nll <= calibrated.fit.nll_temperature <= calibrated.fit.nll_network

    by_hand = quiet()(module, train=loader_of(*TRAIN), holdout=loader_of(*HOLDOUT))
    assert calibrated.weights == by_hand.weights, "the weights at the end of fit are those that the module has now"
    loaded = lates.load(path, module)
    images = HOLDOUT[0][:50]
    assert torch.equal(loaded.predict_proba(images), calibrated.predict_proba(images))

    with open(tmp_path / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    logged = {name: float(value) for row in rows for name, value in row.items() if name != "step" and value}
    assert logged == pytest.approx(scalars(calibrated))
    assert [row["step"] for row in rows] == ["4"]


def test_calibrated_module_needs_no_trainer(tmp_path: Path) -> None:
    callback = CalibrateAfterFit(train=loader_of(*TRAIN), holdout=loader_of(*HOLDOUT), calibration=quiet(blocks=1))
    module = fitted(callback, tmp_path)
    calibrated = callback.calibrated
    assert calibrated is not None
    assert module.trainer is not None, "the module itself keeps its own"
    twin = copy.deepcopy(calibrated)
    images = HOLDOUT[0][:5]
    assert torch.equal(twin.predict_proba(images), calibrated.predict_proba(images))
    with torch.no_grad():
        exported = export_program(calibrated, images).module()(images)
        torch.testing.assert_close(exported, calibrated(images))


def test_callback_without_train_is_temperature_scaling(tmp_path: Path) -> None:
    callback = CalibrateAfterFit(holdout=loader_of(*HOLDOUT), calibration=partial(lates.calibrate, progress=False))
    module = fitted(callback, tmp_path)
    assert callback.calibrated is not None
    assert callback.calibrated.temperature > 0
    with torch.no_grad():
        logits = module.eval()(HOLDOUT[0])
    expected = lates.TemperatureScaling().fit(logits, HOLDOUT[1]).temperature_
    assert callback.calibrated.temperature == pytest.approx(expected, rel=1e-5)


def test_callback_can_calibrate_a_part_of_the_module(tmp_path: Path) -> None:
    def calibrate_network(module: Classifier, **loaders: Any) -> lates.CalibratedModel:
        return quiet()(module.network, **loaders)

    callback = CalibrateAfterFit(train=loader_of(*TRAIN), holdout=loader_of(*HOLDOUT), calibration=calibrate_network)
    fitted(callback, tmp_path)
    assert callback.calibrated is not None
    assert list(callback.calibrated.weights) == [*(f"stages.{place}" for place in range(3)), "head"]


def test_callback_refuses_an_unwritable_path_before_the_fit(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        CalibrateAfterFit(holdout=loader_of(*HOLDOUT), path=tmp_path / "none" / "module.lates.safetensors")
