from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import lates
from lates.stack.losses import BRIER, NLL

EXACT = replace(lates.DEFAULT, tolerance=1e-6)
Both = tuple[lates.Features, lates.Features]


def identity_network(width: int, classes: int) -> nn.Module:
    """A network whose block "body" puts out its inputs [n, width]."""
    return nn.Sequential(OrderedDict(body=nn.Identity(), fc=nn.Linear(width, classes)))


def features_of(rows: Tensor, labels: Tensor, classes: int, memory: int | None = None) -> lates.Features:
    """Features of a block "body" that are these very rows [n, width]."""
    network = identity_network(rows.shape[1], classes)
    return lates.extract(network, list(zip(rows.split(50), labels.split(50), strict=True)), ["body"], memory=memory)


def draw(n: int, width: int, classes: int, seed: int = 0, signal: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(width, classes, generator=torch.Generator().manual_seed(99))
    rows = torch.randn(n, width, generator=generator)
    scores = signal * rows @ directions
    return rows, torch.multinomial(scores.softmax(1), 1, generator=generator)[:, 0]


def train_body(train: lates.Features, holdout: lates.Features | None = None, loss: str = "nll") -> lates.TrainedProbe:
    return lates.train_probes(train, holdout, loss=loss, settings=EXACT)["body"]


def centred(logits: Tensor) -> Tensor:
    return logits - logits.mean(1, keepdim=True)


def test_probe_matches_scikit_learn_s_logistic_regression(features: Both) -> None:
    train, _ = features
    probes = lates.train_probes(train, settings=EXACT)
    assert list(probes) == ["stages.0", "stages.1", "stages.2"]
    for name, trained in probes.items():
        rows = train.blocks[name].double().numpy()
        standardised = (rows - rows.mean(0)) / rows.std(0)
        oracle = LogisticRegression(C=1 / (train.rows * trained.decay), tol=1e-10, max_iter=5000)
        oracle.fit(standardised, train.labels.numpy())
        expected = torch.from_numpy(oracle.decision_function(standardised))
        torch.testing.assert_close(
            centred(trained.probe.logits(train.blocks[name])).double(), centred(expected), atol=5e-3, rtol=0
        )
        assert trained.loss == pytest.approx(float(NLL(expected, train.labels)), abs=1e-5)


def test_brier_probe_matches_lbfgsb() -> None:
    rows, labels = draw(300, 6, 3)
    trained = train_body(features_of(rows, labels, 3), loss="brier")
    standardised = ((rows - rows.mean(0)) / rows.std(0, correction=0)).double()

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        variables = torch.from_numpy(flat.reshape(3, 7)).requires_grad_()
        loss = BRIER(standardised @ variables[:, :-1].T + variables[:, -1], labels)
        value = loss + trained.decay / 2 * variables[:, :-1].square().sum()
        (slope,) = torch.autograd.grad(value, variables)
        return value.item(), slope.numpy().ravel()

    found = minimize(objective, np.zeros(21), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10})
    variables = torch.from_numpy(found.x.reshape(3, 7))
    expected = standardised @ variables[:, :-1].T + variables[:, -1]
    torch.testing.assert_close(centred(trained.probe.logits(rows)).double(), centred(expected), atol=1e-3, rtol=0)
    assert trained.loss == pytest.approx(float(BRIER(expected, labels)), abs=1e-6)


@hypothesis_settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.floats(-1000, 1000), st.floats(-3, 3)), min_size=5, max_size=5))
def test_logits_ignore_shift_and_scale_of_features(changes: list[tuple[float, float]]) -> None:
    rows, labels = draw(200, 5, 3)
    offsets, exponents = (torch.tensor(values) for values in zip(*changes, strict=True))
    moved = (rows.double() * 10**exponents + offsets).float()
    plain = train_body(features_of(rows, labels, 3))
    other = train_body(features_of(moved, labels, 3))
    noise = float((offsets.abs() / 10**exponents).max()) * 1e-6  # what float32 features lose to their offset
    torch.testing.assert_close(other.probe.logits(moved), plain.probe.logits(rows), atol=1e-3 + 100 * noise, rtol=0)


def test_constant_features_get_weight_0() -> None:
    rows, labels = draw(200, 5, 3)
    padded = torch.cat([rows, torch.full((200, 1), 1e6), torch.zeros(200, 1)], dim=1)
    plain, trained = train_body(features_of(rows, labels, 3)), train_body(features_of(padded, labels, 3))
    assert trained.probe.down[:, -2:].abs().max() == 0
    torch.testing.assert_close(trained.probe.logits(padded), plain.probe.logits(rows), atol=1e-3, rtol=0)


def test_holdout_chooses_the_decay() -> None:
    chosen: list[float] = []
    for signal, n in ((0.0, 100), (0.3, 300), (3.0, 3000)):
        train = features_of(*draw(n, 20, 4, seed=1, signal=signal), classes=4)
        holdout = features_of(*draw(1000, 20, 4, seed=2, signal=signal), classes=4)
        trained, fixed = train_body(train, holdout), train_body(train)
        held = trained.probe.logits(holdout.blocks["body"])
        assert trained.loss == pytest.approx(float(NLL(held, holdout.labels)), abs=1e-5)
        assert trained.loss <= float(NLL(fixed.probe.logits(holdout.blocks["body"]), holdout.labels)) + 1e-5
        chosen.append(trained.decay)
    assert chosen[0] > chosen[1] > chosen[2]


def test_decay_too_weak_is_noticed_even_where_its_damage_is_slow() -> None:
    """One large feature that tells all, and a hundred small ones that invite to learn the wrong labels by heart."""

    def rows(n: int, seed: int) -> lates.Features:
        generator = torch.Generator().manual_seed(seed)
        truth = torch.arange(n) % 2
        telling = 10 * (2.0 * truth - 1 + 0.1 * torch.randn(n, generator=generator))
        labels = torch.where(torch.rand(n, generator=generator) < 0.2, 1 - truth, truth)
        return features_of(torch.column_stack([telling, 0.3 * torch.randn(n, 100, generator=generator)]), labels, 2)

    train, holdout = rows(200, 1), rows(1000, 2)
    trained = lates.train_probes(train, holdout, settings=replace(lates.DEFAULT, standardise=False))["body"]
    oracle = LogisticRegression(C=1 / (200 * 0.3)).fit(train.blocks["body"].numpy(), train.labels.numpy())
    logits = torch.from_numpy(oracle.predict_log_proba(holdout.blocks["body"].numpy()))
    assert trained.loss <= float(NLL(logits, holdout.labels)) + 0.003


def test_sgd_matches_torch_s_with_the_paper_s_schedule() -> None:
    rows, labels = draw(300, 6, 3)
    trained = lates.train_probes(features_of(rows, labels, 3), seed=7, settings=lates.PAPER_LITERAL)["body"]
    layer = nn.Linear(6, 3)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, step_size=10, gamma=0.5)
    generator = torch.Generator().manual_seed(7)
    for _ in range(50):
        for batch in torch.randperm(300, generator=generator).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(layer(rows[batch]), labels[batch]).backward()
            optimiser.step()
        schedule.step()
    torch.testing.assert_close(centred(trained.probe.logits(rows)), centred(layer(rows).detach()), atol=1e-5, rtol=0)


def test_sgd_takes_as_many_steps_for_two_passes_as_for_one() -> None:
    """Read twice, every row is there twice; the number of steps stays the same, and so, about, does the probe."""
    rows, labels = draw(256, 6, 3)
    once = lates.train_probes(features_of(rows, labels, 3), settings=lates.PAPER)["body"]
    twice = lates.extract(identity_network(6, 3), [(rows, labels)], ["body"], passes=2)
    assert (twice.rows, twice.passes) == (512, 2)
    again = lates.train_probes(twice, settings=lates.PAPER)["body"]
    ratio = again.probe.down.norm() / once.probe.down.norm()
    assert float(ratio) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("settings", [lates.DEFAULT, lates.PAPER])
def test_features_spilled_to_disk_train_the_same_probe(settings: lates.Settings) -> None:
    rows, labels = draw(300, 6, 3)
    kept, spilled = features_of(rows, labels, 3), features_of(rows, labels, 3, memory=1000)
    assert spilled.mapped
    assert not kept.mapped
    probes = [lates.train_probes(each, each, settings=settings)["body"].probe for each in (kept, spilled)]
    assert torch.equal(probes[0].down, probes[1].down)
    assert torch.equal(probes[0].bias, probes[1].bias)


@pytest.mark.parametrize("offset", [0.0, 2.0])
@pytest.mark.parametrize("rank", [1, 3, 4, 9])
@pytest.mark.parametrize("width", [4, 12])
def test_cut_is_the_best_approximation_of_its_rank(width: int, rank: int, offset: float) -> None:
    rows, labels = draw(400, width, 9)
    features = features_of(rows + offset * torch.arange(width), labels, 9)
    settings = replace(EXACT, standardise=offset == 0)  # raw features far from 0 as well
    trained = lates.train_probes(features, features, settings=settings)["body"]
    dense = trained.probe.logits(features.blocks["body"]).double()
    cut = trained.cut(rank)
    approximation = cut.logits(features.blocks["body"]).double()
    best = float(torch.linalg.svdvals(dense - dense.mean(0))[rank:].square().sum())
    assert float((approximation - dense).square().sum()) == pytest.approx(best, rel=1e-3, abs=1e-4)
    torch.testing.assert_close(approximation.mean(0), dense.mean(0), atol=1e-3, rtol=0)
    torch.testing.assert_close(trained.mean_logits.double(), dense.mean(0), atol=1e-3, rtol=0)
    kept = min(rank, width)
    torch.testing.assert_close(trained.basis.T @ trained.basis, torch.eye(min(9, width)), atol=1e-5, rtol=0)
    assert cut.parameters == kept * (width + 9) + 9


@contextmanager
def float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@contextmanager
def coarse_products() -> Iterator[None]:
    torch.set_float32_matmul_precision("medium")
    yield
    assert torch.get_float32_matmul_precision() == "medium"
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize(
    "surroundings",
    [
        torch.no_grad,
        torch.inference_mode,
        partial(torch.autocast, "cpu", torch.bfloat16),
        float64_by_default,
        coarse_products,
    ],
    ids=["no_grad", "inference_mode", "autocast", "float64", "coarse"],
)
@pytest.mark.parametrize("settings", [lates.DEFAULT, lates.PAPER], ids=["default", "paper"])
def test_modes_of_the_caller_change_nothing(
    surroundings: Callable[[], AbstractContextManager[object]], settings: lates.Settings
) -> None:
    network, batch = identity_network(6, 3), draw(300, 6, 3)

    def train(context: AbstractContextManager[object]) -> tuple[Tensor, Tensor]:
        with context:
            features = lates.extract(network, [batch], ["body"])
            trained = lates.train_probes(features, features, settings=settings)["body"]
            return trained.probe.down, trained.probe.logits(features.blocks["body"])

    for plain, surrounded in zip(train(nullcontext()), train(surroundings()), strict=True):
        assert torch.equal(plain, surrounded)
        assert not surrounded.is_inference()


def test_repeated_features_train() -> None:
    """Rounding leaves their Gram matrix with eigenvalues below 0."""
    latent, labels = draw(1000, 1, 3, signal=4.0)
    repeated = features_of(latent @ torch.randn(1, 1500, generator=torch.Generator().manual_seed(0)), labels, 3)
    alone = features_of(latent, labels, 3)
    losses = [lates.train_probes(features, features)["body"].loss for features in (repeated, alone)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)


def test_raw_features_of_any_scale_train_without_standardisation() -> None:
    rows, labels = draw(400, 6, 3)
    for scales in (torch.tensor([1e-3, 1.0, 1.0, 10.0, 1e3, 1e4]), torch.tensor(1e25)):
        features = features_of(rows * scales, labels, 3)
        trained = lates.train_probes(features, features, settings=replace(EXACT, standardise=False))["body"]
        assert trained.probe.down.isfinite().all()
        assert trained.loss < 0.8 * float(np.log(3)) or scales.ndim == 0, "a number whose square is none tells nothing"


@pytest.mark.parametrize(("n", "width", "classes"), [(1, 4, 3), (2, 3, 2), (5, 40, 3), (30, 1, 2), (10, 3, 1)])
def test_tiny_splits_give_finite_probes(n: int, width: int, classes: int) -> None:
    rows, labels = draw(n, width, classes)
    features = features_of(rows, labels, classes)
    for holdout in (None, features):
        trained = lates.train_probes(features, holdout)["body"]
        assert trained.probe.logits(rows).isfinite().all()
        assert trained.cut(1).logits(rows).isfinite().all()


def test_progress_reports_every_block(features: Both) -> None:
    calls: list[tuple[str, int, int | None]] = []
    lates.train_probes(*features, progress=lambda *step: calls.append(step))
    assert calls == [("training probes", done, 3) for done in (1, 2, 3)]


def test_bad_choices_and_features_of_another_network_are_refused(features: Both) -> None:
    train, holdout = features
    with pytest.raises(ValueError, match=r'Unknown loss "hinge"\. Losses: nll, brier, soft_ece'):
        lates.train_probes(train, holdout, loss="hinge")
    with pytest.raises(ValueError, match="train has 10 classes and holdout 3"):
        lates.train_probes(train, features_of(*draw(20, 4, 3), classes=3))
    with pytest.raises(ValueError, match=r"holdout lacks the blocks stages\.0, stages\.1, stages\.2 of train"):
        lates.train_probes(train, replace(holdout, blocks={}))
