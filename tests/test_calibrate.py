import copy
import math
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lates
from tests.conftest import Problem, ResidualNetwork, calibrate, draw_patterns, loader_of
from tests.networks import random_rows, untouched

BLOCKS = ["stages.0", "stages.1", "stages.2"]


def rows_of(loader: DataLoader) -> tuple[Tensor, Tensor]:
    images, labels = zip(*loader, strict=True)
    return torch.cat(images), torch.cat(labels)


def logits_of(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return model(images)


@pytest.mark.parametrize("blocks", [None, 1, ["stages.0", "stages.2"], []])
@pytest.mark.parametrize("budget", [None, 0.01])
def test_objective_on_the_hold_out_falls_from_network_to_temperature_to_stack(
    problem: Problem, blocks: list[str] | int | None, budget: float | None
) -> None:
    calibrated = calibrate(problem, blocks=blocks, budget=budget)
    fit = calibrated.fit
    scaled = calibrate(problem, blocks=[])
    assert fit.objective <= scaled.fit.objective <= fit.nll_network
    assert fit.certified
    images, labels = rows_of(problem.holdout)
    assert lates.metrics.nll(logits_of(problem.model, images), labels) == pytest.approx(fit.nll_network, abs=1e-5)
    assert lates.metrics.nll(logits_of(calibrated, images), labels) == pytest.approx(fit.nll, abs=1e-5)
    assert lates.metrics.nll(logits_of(scaled, images), labels) == pytest.approx(fit.nll_temperature, abs=1e-5)
    assert scaled.temperature > 1


def test_on_unseen_images_all_blocks_together_predict_better(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    before, after = logits_of(problem.model, problem.images), logits_of(calibrated, problem.images)
    scaled = logits_of(calibrate(problem, blocks=[]), problem.images)
    assert lates.metrics.nll(after, problem.labels) < lates.metrics.nll(scaled, problem.labels) - 0.1
    assert lates.metrics.nll(scaled, problem.labels) < lates.metrics.nll(before, problem.labels) - 0.05
    assert lates.metrics.accuracy(after, problem.labels) > lates.metrics.accuracy(before, problem.labels) + 0.05
    assert lates.metrics.ece(after, problem.labels) < lates.metrics.ece(before, problem.labels)


def test_calibrate_equals_its_stages(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    train = lates.extract(problem.model, problem.train, role="train")
    holdout = lates.extract(problem.model, problem.holdout, like=train)
    probes = lates.train_probes(train, holdout)
    members = {name: trained.probe.logits(holdout.blocks[name]) for name, trained in probes.items()}
    stack = lates.fit_stack({**members, "head": holdout.logits}, holdout.labels)
    assert list(calibrated.weights) == list(stack.names)
    assert list(calibrated.weights.values()) == pytest.approx(stack.weights.tolist(), rel=1e-3)
    assert calibrated.fit.nll == pytest.approx(stack.nll, abs=1e-5)


@pytest.mark.parametrize("loss", ["brier", "soft_ece"])
def test_brier_is_lower_and_soft_ece_keeps_the_log_loss_where_asked_for(
    problem: Problem, calibrated: lates.CalibratedModel, loss: str
) -> None:
    chosen = calibrate(problem, loss=loss, budget=None)
    assert chosen.fit.loss == loss
    assert not chosen.fit.certified
    images, labels = rows_of(problem.holdout)
    assert list(chosen.weights) == list(calibrated.weights)
    if loss == "brier":
        by_nll = lates.metrics.brier(logits_of(calibrated, images), labels)
        assert lates.metrics.brier(logits_of(chosen, images), labels) < by_nll
        assert str(chosen).endswith("fitted to brier: a stationary point, certified")
    else:
        assert chosen.fit.nll <= 1.01 * calibrated.fit.nll + 1e-6


def test_probes_train_to_the_log_loss_except_by_the_paper_s_sgd(problem: Problem) -> None:
    by_sgd = replace(lates.DEFAULT, optimiser="sgd")
    for settings, same in ((lates.DEFAULT, True), (by_sgd, False)):
        options = {"blocks": 1, "budget": None, "settings": settings}
        one, other = (calibrate(problem, loss=loss, **options).state_dict() for loss in ("nll", "brier"))
        probes = [name for name in one if name.endswith(".down")]
        assert probes
        assert all(torch.equal(one[name], other[name]) for name in probes) is same


@pytest.mark.parametrize("paper", [lates.PAPER, lates.PAPER_LITERAL], ids=["plausible", "literal"])
def test_paper_settings_equal_their_stages(problem: Problem, paper: lates.Settings) -> None:
    calibrated = calibrate(problem, budget=0.3, views="auto", settings=paper)
    network = sum(parameter.numel() for parameter in problem.model.parameters())
    width = int(0.3 * network / 3 / 10) - 1
    poolings = list(calibrated.networks[0].poolings.values())
    assert {pooling.method for pooling in poolings} == {paper.pooling}
    assert all(1 <= pooling.size[-1] <= width for pooling in poolings)
    assert calibrated.added_parameters <= 0.3 * network
    assert not calibrated.fit.certified
    assert calibrated.fit.nll < calibrated.fit.nll_temperature < calibrated.fit.nll_network
    train = lates.extract(problem.model, problem.train, views="flip", passes=2, budget=0.3, settings=paper, role="train")
    holdout = lates.extract(problem.model, problem.holdout, like=train, settings=paper)
    assert train.rows == 2 * 1200
    probes = lates.train_probes(train, holdout, settings=paper)
    members = {name: trained.probe.logits(holdout.blocks[name]) for name, trained in probes.items()}
    stack = lates.fit_stack({**members, "head": holdout.logits}, holdout.labels, prior=0, solver="sgd")
    assert list(calibrated.weights.values()) == pytest.approx(stack.weights.tolist(), abs=1e-5)


def test_paper_solver_and_penalty_can_be_taken_alone(problem: Problem) -> None:
    by_sgd = calibrate(problem, budget=None, settings=replace(lates.DEFAULT, solver="sgd"))
    exact = calibrate(problem, budget=None)
    assert exact.fit.nll < by_sgd.fit.nll < by_sgd.fit.nll_temperature + 0.02
    penalised = calibrate(problem, budget=None, settings=replace(lates.DEFAULT, regularise=20.0))
    assert sum(penalised.weights.values()) < sum(exact.weights.values())
    scaled = calibrate(problem, blocks=[], settings=replace(lates.DEFAULT, regularise=20.0))
    assert scaled.fit.temperature_weights == penalised.fit.temperature_weights
    assert scaled.weights["head"] == pytest.approx(scaled.fit.temperature_weights[0], rel=1e-6)


@pytest.mark.parametrize("settings", [lates.DEFAULT, lates.PAPER], ids=["default", "paper"])
@pytest.mark.parametrize("kind", ["plain", "mc"])
def test_weights_depend_on_no_random_state_but_the_seed(problem: Problem, settings: lates.Settings, kind: str) -> None:
    model = problem.model if kind == "plain" else lates.mc_dropout(problem.model, samples=2, seed=8)
    images, labels = rows_of(problem.train)
    train = loader_of(images[:300], labels[:300])
    found: list[dict[str, float]] = []
    for state in (1, 2):
        torch.manual_seed(state)
        random.seed(state)
        np.random.seed(state)
        calibrated = lates.calibrate(
            model, train=train, holdout=problem.holdout, seed=3, settings=settings, blocks=2, progress=False
        )
        found.append(calibrated.weights)
    assert found[0] == found[1]


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(problem: Problem, training: bool) -> None:
    model = copy.deepcopy(problem.model).train(training)
    model.get_submodule("stages.1").train(not training)
    next(model.parameters()).requires_grad_(False)
    model(problem.images[:5]).sum().backward()
    with untouched(model):
        calibrated = lates.calibrate(
            model, train=problem.train, holdout=problem.holdout, views="jitter", progress=False, budget=0.05
        )
        calibrated.predict_proba(problem.images[:5])


def test_an_error_leaves_the_model_as_it_was_too(problem: Problem) -> None:
    class Broken(TensorDataset):
        def __getitem__(self, index: int) -> tuple[Tensor, ...]:
            if index == 700:
                raise OSError("disk on fire")
            return super().__getitem__(index)

    model = copy.deepcopy(problem.model).train()
    loader = DataLoader(Broken(*rows_of(problem.holdout)), batch_size=100)
    with untouched(model), pytest.raises(OSError, match="disk on fire"):
        lates.calibrate(model, train=problem.train, holdout=loader, progress=False)


def test_a_wrapped_model_gives_the_same_calibration(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    wrapped = lates.calibrate(
        nn.DataParallel(problem.model).cpu(),  # it moves the network to a GPU where there is one
        train=problem.train, holdout=problem.holdout, budget=None, views=None, progress=False,
    )  # fmt: skip
    # Not to the last bit: threads add in another order from one run to the next.
    assert wrapped.weights == pytest.approx(calibrated.weights, rel=1e-4, abs=1e-6)
    torch.testing.assert_close(logits_of(wrapped, problem.images), logits_of(calibrated, problem.images), rtol=1e-4, atol=1e-4)


def test_spilled_features_give_the_same_calibration(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    spilled = calibrate(problem, budget=None, memory=10_000)
    assert spilled.weights == pytest.approx(calibrated.weights, rel=1e-5)  # threads add in any order


@pytest.mark.parametrize(
    "surroundings",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)],
    ids=["no_grad", "inference_mode", "autocast"],
)
def test_the_caller_s_modes_do_no_harm(problem: Problem, surroundings: Callable[[], AbstractContextManager[object]]) -> None:
    found: list[lates.CalibratedModel] = []
    for context in (nullcontext(), surroundings()):
        with context:
            found.append(calibrate(problem, budget=0.02))
    plain, surrounded = (list(calibrated.weights.values()) for calibrated in found)
    assert surrounded == pytest.approx(plain, abs=0.05)
    assert found[1].fit.nll == pytest.approx(found[0].fit.nll, abs=0.01)
    images = problem.images[:5].clone().requires_grad_()
    found[1](images).sum().backward()
    assert images.grad is not None


def test_views_change_what_the_probes_learn(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    jittered = calibrate(problem, budget=None, views="jitter", passes=3)
    assert jittered.weights != calibrated.weights
    assert jittered.fit.nll < jittered.fit.nll_temperature
    doubled = calibrate(problem, budget=None, views=lambda images: 2 * images)
    assert doubled.fit.nll > calibrated.fit.nll


@pytest.mark.parametrize("blocks", [None, []])
def test_views_of_the_hold_out_are_further_rows_of_it(problem: Problem, blocks: list[str] | None) -> None:
    def darker(images: Tensor) -> Tensor:
        return images / 2

    settings = replace(lates.DEFAULT, prior=0)  # for the prior, views of one input are one
    viewed = calibrate(problem, blocks=blocks, budget=None, holdout_views=darker, settings=settings)
    longer = [*problem.holdout, *((darker(images), labels) for images, labels in problem.holdout)]
    spelt_out = calibrate(problem, blocks=blocks, budget=None, holdout=longer, settings=settings)
    assert viewed.weights == pytest.approx(spelt_out.weights, rel=1e-6)
    assert viewed.weights != pytest.approx(calibrate(problem, blocks=blocks, budget=None).weights, rel=1e-3)


def test_an_error_about_views_of_the_hold_out_names_them(problem: Problem) -> None:
    with pytest.raises(ValueError, match=r'Unknown holdout_views="jiter"\. Known: None, flip'):
        calibrate(problem, holdout_views="jiter")


def test_built_in_views_of_the_hold_out_are_drawn_from_the_seed(problem: Problem) -> None:
    drawn = [calibrate(problem, blocks=1, holdout_views="jitter", seed=seed).weights for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_progress_is_told_of_every_stage(problem: Problem) -> None:
    told: list[tuple[str, int, int | None]] = []
    calibrate(problem, progress=lambda *step: told.append(step), passes=1)
    assert [stage for stage, done, total in told if done == total] == [
        "reading holdout",
        "reading train",
        "training probes",
    ]


def test_no_progress_prints_nothing(problem: Problem, capfd: pytest.CaptureFixture[str]) -> None:
    calibrate(problem, progress=False)
    calibrate(problem, progress=True)  # no terminal here
    assert capfd.readouterr() == ("", "")


def test_a_hold_out_that_is_all_right_bounds_the_weights_by_the_prior_alone(problem: Problem) -> None:
    images, _ = draw_patterns(50, 10, seed=7)
    labels = logits_of(problem.model, images).argmax(1)
    assert calibrate(problem, holdout=[(images, labels)], blocks=[]).fit.certified
    settings = replace(lates.DEFAULT, prior=0)
    scaled = calibrate(problem, holdout=[(images, labels)], blocks=[], settings=settings)
    assert scaled.fit.unbounded
    assert not scaled.fit.certified
    assert math.isfinite(scaled.weights["head"])
    assert "not bounded by the hold-out" in str(scaled)


def test_ignored_rows_change_nothing(problem: Problem) -> None:
    images, labels = rows_of(problem.holdout)
    padded = [(torch.cat([images, images[:100]]), torch.cat([labels, torch.full((100,), -100)]))]
    plain, ignored = calibrate(problem, blocks=[]), calibrate(problem, blocks=[], holdout=padded)
    assert ignored.fit.rows == 1000
    assert ignored.weights["head"] == pytest.approx(plain.weights["head"], abs=1e-5)


def test_a_network_that_knows_nothing_gets_an_infinite_temperature() -> None:
    model = ResidualNetwork().eval()
    images, _ = draw_patterns(200, 10, seed=8)
    wrong = logits_of(model, images).argmin(1)
    scaled = lates.calibrate(model, holdout=[(images, wrong)], blocks=[], progress=False)
    assert scaled.temperature == math.inf
    assert scaled.contributions == {"head": 0.0}
    torch.testing.assert_close(scaled.predict_proba(images), torch.full((200, 10), 0.1))
    assert "head" in str(scaled)


def test_a_budget_too_small_warns_at_the_caller_and_scales_the_temperature(problem: Problem) -> None:
    for settings in (lates.DEFAULT, lates.PAPER):
        with pytest.warns(UserWarning, match="temperature scaling") as caught:
            calibrated = lates.calibrate(
                problem.model, train=problem.train, holdout=problem.holdout,
                budget=1e-4, views=None, settings=settings, progress=False,
            )  # fmt: skip
        assert caught[0].filename == __file__
        assert calibrated.member_names == ["head"]


def test_a_network_without_a_block_warns_that_this_is_temperature_scaling() -> None:
    with pytest.warns(UserWarning, match="temperature scaling"):
        calibrated = lates.calibrate(
            nn.Linear(4, 3),
            train=DataLoader(random_rows(60, 4), 10),
            holdout=DataLoader(random_rows(60, 4, seed=1), 10),
            progress=False,
        )
    assert calibrated.member_names == ["head"]


def test_summary_says_what_a_larger_budget_would_give(problem: Problem, tmp_path: Path) -> None:
    calibrated = calibrate(problem, budget=0.02)
    assert calibrated.fit.budgets[0] == 0
    assert calibrated.fit.budgets[1] <= 0.02 < calibrated.fit.budgets[2]
    assert calibrated.fit.budget_note
    assert f"cross-validated: {calibrated.fit.budget_note}" in str(calibrated).splitlines()
    calibrated.save(tmp_path / "file.safetensors")
    assert lates.load(tmp_path / "file.safetensors", problem.model).fit.budget_note == calibrated.fit.budget_note
    assert calibrate(problem, budget=None).fit.budget_note is None
