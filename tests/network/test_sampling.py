import copy
import math
import random
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lates
from lates.network.sampling import MCDropout, mean_log_probability, read_ensemble
from tests.conftest import Problem


class Noisy(nn.Module):
    """Batch norm, dropout, batch norm: only the dropout may be on while sampling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.5)
        self.second = nn.BatchNorm1d(6)
        self.fc = nn.Linear(6, 3)

    def forward(self, rows: Tensor) -> Tensor:
        return self.fc(self.second(self.drop(self.first(rows))))


def global_states() -> list[Any]:
    numpy_state = np.random.get_state(legacy=False)["state"]["key"]
    return [torch.get_rng_state().tolist(), random.getstate(), numpy_state.tolist()]


@pytest.mark.parametrize("calibrated", [False, True])
def test_the_generator_alone_decides_the_draws_and_the_global_state_stays(problem: Problem, calibrated: bool) -> None:
    def build(seed: int) -> MCDropout | lates.CalibratedModel:
        sampled = lates.mc_dropout(problem.model, samples=1 if calibrated else 4, seed=seed)
        if not calibrated:
            return sampled
        return lates.calibrate(sampled, holdout=problem.holdout, blocks=[], seed=seed, progress=False)

    logits_by_state: list[Tensor] = []
    for state in (1, 2):
        torch.manual_seed(state)
        random.seed(state)
        np.random.seed(state)
        expected, model = global_states(), build(3)
        twin = copy.deepcopy(model)
        with torch.no_grad():
            first, second = model(problem.images[:20]), model(problem.images[:20])
            assert torch.equal(twin(problem.images[:20]), first), "a copy draws on by itself"
            model.generator.manual_seed(3)
            assert torch.equal(model(problem.images[:20]), first)
            assert not torch.equal(build(4)(problem.images[:20]), first)
        assert not torch.equal(first, second)
        assert global_states() == expected
        logits_by_state.append(first)
    assert torch.equal(*logits_by_state)


def test_dropout_is_on_and_batch_norm_off_whatever_mode_is_asked_for() -> None:
    model = Noisy().train()
    model.first.running_mean = torch.randn(6)
    before = copy.deepcopy(model.state_dict())
    rows = torch.randn(16, 6)
    sampled = lates.mc_dropout(model, samples=2)
    for mode in (sampled.eval, sampled.train):
        mode()
        sampled.generator.manual_seed(0)
        together = sampled(rows)
        assert not torch.equal(together, sampled(rows))
        flags = {type(part): part.training for part in sampled.network.network.modules()}
        assert flags[nn.Dropout]
        assert not flags[nn.BatchNorm1d]
    assert model.training
    assert all(part.training for part in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_forward_is_the_log_of_the_mean_probability() -> None:
    model = Noisy().eval()
    rows = torch.randn(5, 6)
    sampled = lates.mc_dropout(model, samples=4000)
    with torch.no_grad():
        logits = sampled(rows)
        torch.testing.assert_close(logits.exp().sum(1), torch.ones(5), atol=1e-5, rtol=0)
        model.drop.train()
        torch.manual_seed(0)
        mean = torch.stack([model(rows).softmax(1) for _ in range(4000)]).mean(0)
    torch.testing.assert_close(logits.exp(), mean, atol=0.03, rtol=0)


def test_the_mean_of_probabilities_survives_extreme_logits() -> None:
    sure = torch.tensor([[1000.0, 0.0], [0.0, 1000.0]])
    mean = mean_log_probability([sure, -sure])
    torch.testing.assert_close(mean, torch.full((2, 2), math.log(0.5)))


class Functional(nn.Linear):
    """Drops out by a flag that evaluation turns off, with a rate of its own: nothing here can be switched on alone."""

    dropout = 0.5

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(input, self.dropout, self.training))


def test_without_a_dropout_layer_every_sample_would_be_the_same() -> None:
    for model in (nn.Linear(3, 2), nn.Sequential(nn.Dropout(0.0), nn.Linear(3, 2)), Functional(3, 2)):
        with pytest.raises(ValueError, match="no dropout layer"):
            lates.mc_dropout(model)
    with pytest.raises(ValueError, match="samples=0: expected at least 1"):
        lates.mc_dropout(Noisy(), samples=0)
    with pytest.raises(TypeError, match=r"samples=1\.5: expected a whole number"):
        lates.mc_dropout(Noisy(), samples=1.5)  # pyright: ignore[reportArgumentType]


def test_what_is_neither_a_model_nor_models_is_refused(problem: Problem) -> None:
    for given in ("resnet18", [], [problem.model, "resnet18"]):
        with pytest.raises(TypeError, match=r"Expected an nn.Module, mc_dropout\(…\) or a list"):
            read_ensemble(given)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="ensemble of MC-dropout networks is not supported"):
        read_ensemble([lates.mc_dropout(problem.model), problem.model])


@pytest.fixture(scope="module")
def sampled_and_calibrated(problem: Problem) -> lates.CalibratedModel:
    return lates.calibrate(
        lates.mc_dropout(problem.model, samples=4),
        train=problem.train, holdout=problem.holdout, budget=None, views=None, progress=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def ensemble_calibrated(problem: Problem, ensemble: list[nn.Module]) -> lates.CalibratedModel:
    return lates.calibrate(ensemble, train=problem.train, holdout=problem.holdout, budget=None, views=None, progress=False)


def test_calibrating_a_mean_lowers_its_log_loss(
    problem: Problem, sampled_and_calibrated: lates.CalibratedModel, ensemble_calibrated: lates.CalibratedModel
) -> None:
    for calibrated in (sampled_and_calibrated, ensemble_calibrated):
        assert calibrated.fit.nll < calibrated.fit.nll_temperature < calibrated.fit.nll_network
        assert not calibrated.fit.certified, "the log-loss of a mean is not convex"
    assert "mean of 4 predictions" in str(sampled_and_calibrated)
    with torch.no_grad():
        before = lates.mc_dropout(problem.model, samples=4)(problem.images)
        sampled_and_calibrated.generator.manual_seed(0)
        after = sampled_and_calibrated(problem.images)
    assert lates.metrics.nll(after, problem.labels) < lates.metrics.nll(before, problem.labels) - 0.05
    torch.testing.assert_close(after.exp().sum(1), torch.ones(len(after)), atol=1e-4, rtol=0)


def test_an_ensemble_has_weights_for_each_network_draws_nothing_and_has_the_log_loss_of_its_fit(
    problem: Problem, ensemble_calibrated: lates.CalibratedModel
) -> None:
    blocks = ["stages.0", "stages.1", "stages.2", "head"]
    assert list(ensemble_calibrated.weights) == [f"{place}/{name}" for place in (0, 1) for name in blocks]
    assert sum(ensemble_calibrated.contributions.values()) == pytest.approx(1)
    images, labels = (torch.cat(parts) for parts in zip(*problem.holdout, strict=True))
    state = ensemble_calibrated.generator.get_state()
    with torch.no_grad():
        logits, again = ensemble_calibrated(images), ensemble_calibrated(images)
    assert torch.equal(logits, again)
    assert torch.equal(ensemble_calibrated.generator.get_state(), state)
    assert lates.metrics.nll(logits, labels) == pytest.approx(ensemble_calibrated.fit.nll, abs=1e-5)


def test_members_of_several_samples_come_sample_by_sample(
    problem: Problem, sampled_and_calibrated: lates.CalibratedModel, ensemble_calibrated: lates.CalibratedModel
) -> None:
    for calibrated in (sampled_and_calibrated, ensemble_calibrated):
        several = len(calibrated.networks) > 1
        calibrated.generator.manual_seed(5)
        members = calibrated.members(problem.images[:7])
        calibrated.generator.manual_seed(5)
        with torch.no_grad():
            logits = calibrated(problem.images[:7])
        assert isinstance(members, list)
        parts: list[Tensor] = []
        for place, sample in enumerate(members):
            prefix = f"{place}/" if several else ""
            names = [name for name in calibrated.member_names if name.startswith(prefix)]
            weights = torch.tensor([calibrated.weights[name] for name in names])
            assert sample.shape == (7, 10, len(names))
            parts.append((sample @ weights).softmax(1))
        torch.testing.assert_close(torch.stack(parts).mean(0), logits.exp(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["mc", "ensemble"])
@pytest.mark.parametrize("regularise", [0.0, 5.0])
def test_temperature_scaling_of_a_mean_never_ends_above_the_network(
    problem: Problem, ensemble: list[nn.Module], kind: str, regularise: float
) -> None:
    model = lates.mc_dropout(problem.model, samples=3) if kind == "mc" else ensemble
    settings = lates.Settings(regularise=regularise)
    scaled = lates.calibrate(model, holdout=problem.holdout, blocks=[], settings=settings, progress=False)
    assert scaled.fit.nll == pytest.approx(scaled.fit.nll_temperature, abs=1e-6)
    if not regularise:
        assert scaled.fit.nll <= scaled.fit.nll_network


class Part(nn.Module):
    """An expert that answers with its own columns of the input."""

    def __init__(self, columns: slice) -> None:
        super().__init__()
        self.columns, self.scale = columns, nn.Parameter(torch.ones(()))

    def forward(self, rows: Tensor) -> Tensor:
        return self.scale * rows[:, self.columns]


def loud_experts() -> tuple[list[nn.Module], Tensor, Tensor]:
    """Each is right on every other row, and ten times as sure where it is wrong: by itself it is best ignored, and with
    both at weight 0 no small step of the weights helps. The mean of the two as they are is far better."""
    labels = torch.arange(200) % 10
    right, wrong = 3.0 * torch.eye(10)[labels], 30.0 * torch.eye(10)[(labels + 1 + torch.arange(200) // 40) % 10]
    even = (torch.arange(200) % 4 < 2)[:, None]
    rows = torch.cat([torch.where(even, right, wrong), torch.where(even, wrong, right)], dim=1)
    return [Part(slice(0, 10)), Part(slice(10, 20))], rows, labels


def test_experts_that_err_loudly_are_not_silenced() -> None:
    experts, rows, labels = loud_experts()
    for expert in experts:
        alone = lates.calibrate(expert, holdout=[(rows, labels)], blocks=[], progress=False)
        assert alone.weights["head"] == 0
    together = lates.calibrate(experts, holdout=[(rows, labels)], blocks=[], progress=False)
    assert together.fit.nll <= together.fit.nll_temperature <= together.fit.nll_network < 1.2


@pytest.mark.parametrize(("regularise", "speak"), [(31.0, True), (70.0, False)])
def test_where_the_mean_s_fit_begins_is_chosen_with_the_penalty(regularise: float, speak: bool) -> None:
    """As they are the experts cost 1.06 + regularise / sqrt(200) / 2, silent log 10. Of the stronger penalty's two valleys
    the one that begins at the experts as they are ends at 2.4."""
    experts, rows, labels = loud_experts()
    settings = lates.Settings(regularise=regularise)
    with nullcontext() if speak else pytest.warns(UserWarning, match="All weights are 0"):
        scaled = lates.calibrate(experts, holdout=[(rows, labels)], blocks=[], settings=settings, progress=False)
    weights = torch.tensor(list(scaled.weights.values()), dtype=torch.float64)
    assert all(weights > 0.5) if speak else all(weights == 0)
    assert scaled.fit.nll + regularise / math.sqrt(200) / 2 * float(weights @ weights) / 2 <= math.log(10) + 1e-9


def test_one_network_whose_weights_know_no_end_is_enough_to_say_so() -> None:
    labels = torch.arange(200) % 10
    perfect, loud = 3.0 * torch.eye(10)[labels], loud_experts()[1][:, :10]
    networks = [Part(slice(0, 10)), Part(slice(10, 20))]
    for first, second, unbounded in ((perfect, loud, True), (loud, perfect, True), (loud, loud, False)):
        rows = torch.cat([first, second], dim=1)
        settings = lates.Settings(prior=0)
        fit = lates.calibrate(networks, holdout=[(rows, labels)], blocks=[], settings=settings, progress=False).fit
        assert fit.unbounded == unbounded


def test_networks_of_different_numbers_of_classes_have_no_mean() -> None:
    rows, labels = torch.randn(50, 20, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 3
    networks = [Part(slice(0, 8)), Part(slice(8, 20))]
    with pytest.raises(ValueError, match="The networks have 8, 12 classes; they need the same"):
        lates.calibrate(networks, holdout=[(rows, labels)], blocks=[], progress=False)


@pytest.mark.parametrize("loss", ["brier", "soft_ece"])
def test_the_mean_is_fitted_to_the_log_loss_only(problem: Problem, ensemble: list[nn.Module], loss: str) -> None:
    with pytest.raises(ValueError, match=f'loss="{loss}" is for single networks'):
        lates.calibrate(ensemble, holdout=problem.holdout, blocks=[], loss=loss, progress=False)


class Encoder(nn.Module):
    """Tokens [n, tokens, 8] through PyTorch's own encoder layers, which in evaluation take a path without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True) for _ in range(2))
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
