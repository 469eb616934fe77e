"""Faults that a second pair of eyes found, each with the test that would have."""

import copy
import os
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import cross_val_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lates
from lates.blocks import automatic_blocks


def rows(n: int, *shape: int, classes: int = 3, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(n, *shape, generator=generator), torch.arange(n) % classes)


class Encoder(nn.Module):
    """Tokens [n, tokens, 8] through PyTorch's own encoder layers, which in evaluation take a path without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True) for _ in range(2)
        )
        self.fc = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        for layer in self.layers:
            tokens = layer(tokens)
        return self.fc(tokens.mean(1))


def test_dropout_inside_pytorch_s_encoder_layers_is_on_without_gradients_too() -> None:
    torch.manual_seed(0)
    sampled = lates.mc_dropout(Encoder(), samples=2)
    tokens = torch.randn(4, 5, 8)
    with torch.no_grad():
        assert not torch.allclose(sampled(tokens), sampled(tokens))


class Closure(nn.Module):
    """Keeps its layers, and beside them a function that holds the module itself."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)
        self.features = lambda images: self.norm(self.conv(images)).relu()

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.features(images).mean((2, 3)))


def test_a_function_that_holds_the_network_does_not_lead_back_to_it() -> None:
    model = Closure().train()
    before = copy.deepcopy(model.state_dict())
    lates.extract(model, DataLoader(rows(40, 1, 8, 8), batch_size=10))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class InnerAttention(nn.Module):
    """Takes and gives [n, tokens, c], though the attention inside is sequence-first."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.out = nn.MultiheadAttention(8, 2), nn.Linear(8, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        turned = tokens.transpose(0, 1)
        return tokens + self.out(self.attention(turned, turned, turned)[0].transpose(0, 1))


def test_rows_are_not_taken_for_tokens_when_there_are_as_many() -> None:
    torch.manual_seed(0)
    body = nn.Sequential(InnerAttention(), InnerAttention(), InnerAttention())
    model = nn.Sequential(body, nn.Flatten(), nn.Linear(16 * 8, 3))
    loader = DataLoader(rows(40, 16, 8), batch_size=16)
    features = lates.extract(model, loader)
    alone = lates.extract(model, DataLoader(rows(40, 16, 8), batch_size=7))
    for name, values in features.blocks.items():
        torch.testing.assert_close(values, alone.blocks[name], rtol=1e-4, atol=1e-5)


def test_a_network_without_a_block_warns_that_this_is_temperature_scaling() -> None:
    with pytest.warns(UserWarning, match="temperature scaling"):
        calibrated = lates.calibrate(
            nn.Linear(4, 3),
            train=DataLoader(rows(60, 4), 10),
            holdout=DataLoader(rows(60, 4, seed=1), 10),
            progress=False,
        )
    assert calibrated.member_names == ["head"]


def test_without_views_the_training_split_is_read_once() -> None:
    read: list[int] = []

    class Counted(TensorDataset):
        def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
            read.append(index)
            return super().__getitem__(index)

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    train = DataLoader(Counted(*rows(60, 4).tensors), 10)
    lates.calibrate(model, train=train, holdout=DataLoader(rows(60, 4, seed=1), 10), views=None, progress=False)
    assert len(read) == 60


def test_disjoint_lists_of_rows_are_no_overlap() -> None:
    data = rows(60, 4)
    train, holdout = DataLoader(data, 10, sampler=range(40)), DataLoader(data, 10, sampler=range(40, 60))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    lates.calibrate(model, train=train, holdout=holdout, progress=False)
    with pytest.raises(ValueError, match="share 20 rows"):
        lates.calibrate(model, train=DataLoader(data, 10, sampler=range(60)), holdout=holdout, progress=False)


def test_a_saved_file_can_be_read_by_whom_the_umask_lets(tmp_path: Any) -> None:
    calibrated = lates.calibrate(nn.Linear(4, 3), holdout=DataLoader(rows(60, 4), 10), blocks=[], progress=False)
    before = os.umask(0o022)
    try:
        calibrated.save(tmp_path / "a.lates.safetensors")
    finally:
        os.umask(before)
    assert (tmp_path / "a.lates.safetensors").stat().st_mode & 0o777 == 0o644


def test_composites_before_a_long_tail_all_get_a_probe() -> None:
    def block() -> nn.Module:
        return nn.TransformerEncoderLayer(8, 2, 16)

    class Tail(nn.Module):
        def __init__(self, layers: int) -> None:
            super().__init__()
            self.first, self.second = block(), block()
            self.tail = nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers)))

    assert automatic_blocks(Tail(2)) == ["first"]
    assert automatic_blocks(Tail(5)) == ["first", "second"]


def test_networks_of_an_ensemble_need_the_same_classes() -> None:
    holdout = DataLoader(rows(60, 4), 10)
    with pytest.raises(ValueError, match="3, 4 classes"):
        lates.calibrate([nn.Linear(4, 3), nn.Linear(4, 4)], holdout=holdout, blocks=[], progress=False)


def test_two_classes_score_by_roc_auc() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 80)
    logits = generator.normal(size=(80, 2)) + 2 * np.eye(2)[labels]
    assert cross_val_score(lates.TemperatureScaling(), logits, labels, scoring="roc_auc").min() > 0.5


def test_features_of_other_blocks_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    loader = DataLoader(rows(60, 4), 10)
    train, other = lates.extract(model, loader), lates.extract(model, loader, blocks=1)
    with pytest.raises(ValueError, match="holdout lacks the blocks 1 of train"):
        lates.train_probes(train, other)
