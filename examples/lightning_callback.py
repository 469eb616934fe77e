"""Lightning: a callback calibrates the module when `fit` ends, and logs what it found. Needs `lates[lightning]`."""

from functools import partial

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lates
from lates.demo import Split, load_splits
from lates.integrations.lightning import CalibrateAfterFit


class Classifier(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        hidden = [nn.Sequential(nn.Linear(*sizes), nn.ReLU()) for sizes in ((784, 64), (64, 64))]
        self.network = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(64, 10))

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def loader_of(split: Split, shuffle: bool = False) -> DataLoader:
    return DataLoader(TensorDataset(split.images, split.labels), batch_size=100, shuffle=shuffle)


def main() -> None:
    torch.manual_seed(0)
    splits = load_splits().shrink(2)
    module = Classifier()
    callback = CalibrateAfterFit(
        train=loader_of(splits.train),
        holdout=loader_of(splits.holdout),
        calibration=partial(lates.calibrate, budget=0.1),
    )
    trainer = Trainer(max_epochs=30, accelerator="cpu", callbacks=[callback], logger=False, enable_checkpointing=False)
    trainer.fit(module, loader_of(splits.train, shuffle=True))
    assert callback.calibrated is not None
    print(callback.calibrated, "\n")

    for name, model in {"network": module.eval(), "LATES": callback.calibrated}.items():
        with torch.no_grad():
            measured = lates.metrics.summary(model(splits.test.images), splits.test.labels)
        print(f"{name:<12} nll {measured['nll']:.3f}  accuracy {measured['accuracy']:.3f}  ece {measured['ece']:.3f}")


if __name__ == "__main__":
    main()
