"""Training follows its recipe, repeats itself bitwise on a CPU, and outlives being killed."""

import itertools
import math
import os
import pickle
import random
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from experiments.checkpoints import Progress, load_tensors, save_tensors, write_atomically
from experiments.claims import CLAIM, claimed
from experiments.data import ImageSet, load_folder, load_sample, scale
from experiments.feeds import EpochDraws, Share, derive_seed
from experiments.schedules import (
    MC_DROPOUT,
    MC_DROPOUT_FLIPS_ONLY,
    PAPER_CIFAR,
    PAPER_IMAGENET,
    Recipe,
    choose_recipe,
    learning_rates,
)
from experiments.train import main
from experiments.training import measure_accuracy, train_network

SAMPLE = Path(__file__).with_name("cifar10_600.npz")
SHORT = Recipe(epochs=2, batch=100, rate=0.05, weight_decay=1e-3, nesterov=True, crop=2)
CPU = Share(torch.device("cpu"))


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Networks this small only lose by sharing a step among threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def images() -> ImageSet:
    return load_sample(SAMPLE)[0]


def dropout_network() -> nn.Module:
    """Small, with batch norm and dropout: all kinds of state that a resumed run has to bring back."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2)
    return nn.Sequential(*convolution, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 10))


def plain_network() -> nn.Module:
    """Without batch norm or dropout, so that a batch may be cut into parts."""
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 10)
    return nn.Sequential(*layers)


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def fail_if_trained(progress: Progress) -> None:
    pytest.fail(f"a finished run was trained again: {progress}")


# Recipes


def test_recipes_are_the_papers() -> None:
    assert Recipe(epochs=200, batch=128, rate=0.1, weight_decay=1e-4, momentum=0.9) == PAPER_CIFAR
    assert (PAPER_IMAGENET.epochs, PAPER_IMAGENET.warmup_epochs, PAPER_IMAGENET.batch) == (95, 5, 256)
    assert (MC_DROPOUT.rate, MC_DROPOUT.nesterov, MC_DROPOUT.crop, MC_DROPOUT_FLIPS_ONLY.crop) == (0.05, True, 4, 0)
    assert choose_recipe("cifar100") is PAPER_CIFAR
    assert choose_recipe("imagenet") is PAPER_IMAGENET
    assert choose_recipe("cifar10", dropout=0.1) is MC_DROPOUT
    assert choose_recipe("cifar10", dropout=0.1, flips_only=True) is MC_DROPOUT_FLIPS_ONLY


def test_cosine_starts_at_the_rate_halves_in_the_middle_and_ends_near_zero() -> None:
    rates = learning_rates(PAPER_CIFAR, 351)
    assert len(rates) == 200 * 351
    assert rates[0] == 0.1
    assert rates[100 * 351] == pytest.approx(0.05)
    assert 0 < rates[-1] < 1e-9


def test_cosine_agrees_with_torchs_own() -> None:
    recipe = Recipe(epochs=3, batch=1, rate=0.3, weight_decay=0)
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=30)
    for rate in learning_rates(recipe, 10):
        assert schedule.get_last_lr()[0] == pytest.approx(float(rate), abs=1e-12)
        optimiser.step()
        schedule.step()


def test_milestones_count_from_the_first_step_and_warm_up_is_linear() -> None:
    rates = learning_rates(MC_DROPOUT, 10)
    assert rates[:10].tolist() == pytest.approx([0.005 * k for k in range(1, 11)])
    for epoch, factor in [(1, 1), (59, 1), (60, 0.2), (119, 0.2), (120, 0.04), (160, 0.008), (199, 0.008)]:
        assert rates[epoch * 10] == pytest.approx(0.05 * factor), epoch


@given(parts=st.lists(st.integers(0, 2**62), min_size=1, max_size=3), other=st.integers(0, 2**62))
def test_derived_seeds_are_stable_valid_and_sensitive_to_every_part(parts: list[int], other: int) -> None:
    seed = derive_seed(*parts)
    assert seed == derive_seed(*parts)
    assert 0 <= seed < 2**63
    assert seed != derive_seed(*parts, other)


# What a step sees


def augment_by_hand(image: Tensor, flip: bool, shift: tuple[int, int], crop: int) -> Tensor:
    """Pad, cut, flip, one after the other: uint8 [3, h, w] -> float32."""
    height, width = image.shape[1:]
    padded = torch.zeros(3, height + 2 * crop, width + 2 * crop, dtype=torch.uint8)
    padded[:, crop : crop + height, crop : crop + width] = image
    top, left = crop + shift[0], crop + shift[1]
    cut = padded[:, top : top + height, left : left + width]
    return scale(cut.flip(2) if flip else cut)


@settings(max_examples=15, deadline=None)
@given(crop=st.integers(0, 5), seed=st.integers(0, 1000), position=st.integers(0, 2))
def test_augmentation_is_pad_cut_flip(crop: int, seed: int, position: int) -> None:
    pool = load_sample(SAMPLE)[0].images[:30, :, :20, :24]
    draws = EpochDraws(30, 10, crop, seed, CPU)
    draws.begin(0)
    step = torch.tensor([3 + position])
    chosen = draws.order_at(step)
    made = draws.augment(pool, chosen, step)
    for k, index in enumerate(chosen.tolist()):
        down, right = draws.shifts[position, k].tolist()
        expected = augment_by_hand(pool[index], bool(draws.flips[position, k]), (down, right), crop)
        assert torch.equal(made[k], expected)


def test_an_epoch_shows_each_image_at_most_once_and_leaves_the_partial_batch_out() -> None:
    draws = EpochDraws(100, 30, 0, 0, CPU)
    draws.begin(0)
    shown = draws.order.flatten().tolist()
    assert len(shown) == len(set(shown)) == 90
    first = draws.order.clone()
    draws.begin(1)
    assert not torch.equal(draws.order, first)
    draws.begin(0)
    assert torch.equal(draws.order, first)


def test_about_half_of_the_images_are_flipped_and_shifts_cover_their_range() -> None:
    draws = EpochDraws(10_000, 100, 4, 0, CPU)
    draws.begin(0)
    assert draws.flips.double().mean() == pytest.approx(0.5, abs=0.02)
    assert draws.shifts.unique().tolist() == list(range(-4, 5))


@pytest.mark.parametrize("world", [2, 5])
def test_processes_share_each_batch_without_overlap(world: int) -> None:
    whole = EpochDraws(400, 100, 2, 0, CPU)
    whole.begin(3)
    parts = [EpochDraws(400, 100, 2, 0, replace(CPU, rank=rank, world=world)) for rank in range(world)]
    for part in parts:
        part.begin(3)
    assert torch.equal(torch.cat([part.order for part in parts], 1), whole.order)
    assert torch.equal(torch.cat([part.shifts for part in parts], 1), whole.shifts)


# The loop


@pytest.mark.parametrize("recipe", [SHORT, replace(SHORT, nesterov=False, crop=0, milestones=(0.5,), factor=0.1)])
def test_training_is_sgd_as_torch_writes_it(images: ImageSet, recipe: Recipe) -> None:
    """The oracle: torch's plain optimiser, a rate set by hand, batches built image by image."""
    trained, reference = plain_network(), plain_network()
    progress = train_network(recipe, trained, images, seed=7, device="cpu")
    rates = learning_rates(recipe, 4).tolist()
    optimiser = torch.optim.SGD(
        reference.parameters(), momentum=0.9, weight_decay=1e-3, nesterov=recipe.nesterov, foreach=False
    )
    draws = EpochDraws(400, recipe.batch, recipe.crop, 7, CPU)
    losses: list[float] = []
    for step, rate in enumerate(rates):
        if step % 4 == 0:
            draws.begin(step // 4)
        chosen = draws.order[step % 4]
        batch = draws.augment(images.images, chosen, torch.tensor([step]))
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        loss = cross_entropy(reference(batch), images.labels[chosen])
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    for one, other in zip(trained.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert progress.losses == pytest.approx([sum(losses[:4]) / 4, sum(losses[4:]) / 4], rel=1e-5)


def test_training_learns() -> None:
    train, test = load_sample(SAMPLE)
    network = plain_network()
    progress = train_network(Recipe(15, 50, 0.1, 1e-4), network, train, seed=0, device="cpu")
    assert progress.finished
    assert progress.losses[-1] < progress.losses[0] - 0.2
    assert measure_accuracy(network, test) > 0.2
    assert not network.training


def test_a_seed_decides_everything_and_the_callers_random_state_is_left_alone(images: ImageSet) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    networks = [plain_network() for _ in range(3)]
    torch.manual_seed(5)
    for network, seed in zip(networks, (1, 1, 2), strict=True):
        train_network(SHORT, network, images, seed=seed, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    assert same_weights(networks[0], networks[1])
    assert not same_weights(networks[0], networks[2])


def test_files_give_the_same_training_as_images_in_memory(tmp_path: Path, images: ImageSet) -> None:
    for index, image in enumerate(images.images[:60]):
        folder = tmp_path / f"{images.labels[index]}"
        folder.mkdir(exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{index}.png")
    files = load_folder(tmp_path, size=28)
    memory = ImageSet(torch.stack([files[i][0] for i in range(60)]), files.labels, files.classes)
    recipe = replace(SHORT, batch=20)
    from_files, from_memory = plain_network(), plain_network()
    stopped = train_network(
        recipe, from_files, files, seed=0, device="cpu", folder=tmp_path / "run", max_seconds=0, workers=0
    )
    assert stopped.step == 1
    train_network(recipe, from_files, files, seed=0, device="cpu", folder=tmp_path / "run", workers=1)
    train_network(recipe, from_memory, memory, seed=0, device="cpu")
    assert same_weights(from_files, from_memory)
    assert measure_accuracy(from_files, files, batch=7, workers=0) == measure_accuracy(from_memory, memory)


def test_reports_come_once_an_epoch(images: ImageSet) -> None:
    heard: list[Progress] = []
    final = train_network(SHORT, plain_network(), images, seed=0, device="cpu", report=heard.append)
    assert [(progress.step, len(progress.losses)) for progress in heard] == [(4, 1), (8, 2)]
    assert heard[-1] == final


@pytest.mark.parametrize(
    ("recipe", "device", "message"),
    [
        (replace(SHORT, batch=500), "cpu", "A batch of 500 needs as many images; got 400"),
        pytest.param(
            SHORT,
            "cuda",
            "--device cuda: torch .* sees no GPU here",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here"),
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(images: ImageSet, recipe: Recipe, device: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_network(recipe, plain_network(), images, seed=0, device=device)


def test_divergence_is_an_error_not_a_network(tmp_path: Path, images: ImageSet) -> None:
    with pytest.raises(FloatingPointError, match="Training diverged"):
        train_network(replace(SHORT, rate=1e20), plain_network(), images, seed=0, device="cpu", folder=tmp_path)
    assert not (tmp_path / "network.safetensors").exists()


# Checkpoints


def test_a_run_stopped_after_every_step_ends_in_the_same_weights(tmp_path: Path, images: ImageSet) -> None:
    whole = dropout_network()
    undisturbed = train_network(SHORT, whole, images, seed=3, device="cpu")
    network, steps = dropout_network(), []
    while not steps or steps[-1] < 8:
        network = dropout_network()
        progress = train_network(SHORT, network, images, seed=3, device="cpu", folder=tmp_path, max_seconds=0)
        steps.append(progress.step)
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8]
    assert same_weights(network, whole)
    again = train_network(SHORT, network, images, seed=3, device="cpu", folder=tmp_path)
    assert again.losses == undisturbed.losses
    assert [path.name for path in tmp_path.iterdir()] == ["network.safetensors"]


def test_a_finished_run_is_only_loaded(tmp_path: Path, images: ImageSet) -> None:
    first, second = dropout_network(), dropout_network()
    done = train_network(SHORT, first, images, seed=3, device="cpu", folder=tmp_path)
    again = train_network(SHORT, second, images, seed=3, device="cpu", folder=tmp_path, report=fail_if_trained)
    assert again == done
    assert same_weights(first, second)
    assert not second.training


@pytest.mark.parametrize("finished", [False, True])
def test_a_file_cut_in_half_is_put_aside_and_done_anew(tmp_path: Path, images: ImageSet, finished: bool) -> None:
    limit = math.inf if finished else 0
    train_network(SHORT, plain_network(), images, seed=3, device="cpu", folder=tmp_path, max_seconds=limit)
    (path,) = tmp_path.iterdir()
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half)
    network, expected = plain_network(), plain_network()
    with pytest.warns(UserWarning, match=rf"{path.name} cannot be read .*renamed to {path.name}\.damaged"):
        train_network(SHORT, network, images, seed=3, device="cpu", folder=tmp_path)
    train_network(SHORT, expected, images, seed=3, device="cpu")
    assert same_weights(network, expected)
    assert path.with_name(f"{path.name}.damaged").read_bytes() == half


@pytest.mark.parametrize("limit", [0, math.inf])
def test_a_folder_of_another_run_is_refused(tmp_path: Path, images: ImageSet, limit: float) -> None:
    def go(recipe: Recipe, data: ImageSet, seed: int) -> None:
        train_network(recipe, plain_network(), data, seed=seed, device="cpu", folder=tmp_path, max_seconds=limit)

    go(SHORT, images, 3)
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"of another run: its seed is 3, this run's is 4\. Choose another folder"):
        go(SHORT, images, 4)
    with pytest.raises(ValueError, match="its recipe is"):
        go(replace(SHORT, rate=0.01), images, 3)
    with pytest.raises(ValueError, match="its labels is"):
        go(SHORT, replace(images, labels=images.labels.flip(0)), 3)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path, images: ImageSet) -> None:
    train_network(SHORT, plain_network(), images, seed=3, device="cpu", folder=tmp_path, max_seconds=0)
    with pytest.raises(
        ValueError, match=r"of another network: its momentum\.1\.bias has shape None, here it has \(8,\)"
    ):
        train_network(SHORT, dropout_network(), images, seed=3, device="cpu", folder=tmp_path)


def test_the_finished_file_opens_with_safetensors_alone(tmp_path: Path, images: ImageSet) -> None:
    network = plain_network()
    train_network(SHORT, network, images, seed=3, device="cpu", folder=tmp_path)
    weights = safetensors.torch.load_file(tmp_path / "network.safetensors")
    assert all(torch.equal(weights[name], tensor) for name, tensor in network.state_dict().items())
    _, facts = load_tensors(tmp_path / "network.safetensors") or ({}, {})
    assert facts["seed"] == 3
    assert facts["recipe"]["rate"] == SHORT.rate
    assert len(facts["progress"]["losses"]) == 2


def test_tensors_and_facts_survive_the_disk(tmp_path: Path) -> None:
    tensors = {"a": torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last), "n": torch.tensor(7)}
    save_tensors(tmp_path / "file", tensors, {"seed": 1, "loss": 0.1})
    found, facts = load_tensors(tmp_path / "file") or ({}, {})
    assert facts == {"seed": 1, "loss": 0.1}
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    assert load_tensors(tmp_path / "nothing") is None


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full_disk(_: int) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="no space"):
            write_atomically(path, b"new and longer")
    assert path.read_bytes() == b"old"
    write_atomically(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


# The command


def test_the_command_trains_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train, test = load_sample(SAMPLE)
    root = tmp_path / "data" / "cifar-10-batches-py"
    root.mkdir(parents=True)
    parts = {f"data_batch_{i + 1}": train.select(torch.arange(80) + 80 * i) for i in range(5)} | {"test_batch": test}
    for name, part in parts.items():
        content = {b"data": part.images.flatten(1).numpy(), b"labels": part.labels.tolist()}
        (root / name).write_bytes(pickle.dumps(content, protocol=2))
    names = [name.encode() for name in train.classes]
    (root / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=2))
    command = f"train --network tiny_vgg --dataset cifar10 --data {root.parent} --epochs 1 --device cpu --out"
    monkeypatch.setattr(sys, "argv", [*command.split(), str(tmp_path / "run")])
    main()
    assert "epoch 1/1  loss 2." in capsys.readouterr().out
    main()
    assert capsys.readouterr().out.startswith("test accuracy 0.")
    monkeypatch.setattr(sys, "argv", [*command.split(), str(tmp_path / "stopped"), "--max-seconds", "0"])
    main()
    assert "stopped after step 1 of 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--dataset cifar10 --data {folder}", r"^Error: No cifar-10-batches-py in .*leave --data out"),
        ("--dataset imagenet --data {folder}", r"^Error: .*train has no folders"),
        ("--train-fraction .98", r"^Error: Fractions have .* got train 0\.98, hold-out 0\.1\.$"),
        ("--device gpu", r'^Error: Unknown --device "gpu"'),
        ("--out {folder}/file/below", r"^Error: .*file/below: Not a directory\.$"),
    ],
)
def test_the_command_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, message: str
) -> None:
    (tmp_path / "file").write_text("")
    command = f"train --network tiny_vgg --dataset cifar10_600 --device cpu --out {tmp_path / 'run'} {options}"
    monkeypatch.setattr(sys, "argv", command.format(folder=tmp_path).split())
    with pytest.raises(SystemExit, match=message):
        main()


def test_the_command_shows_tracebacks_to_those_who_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"train --network tiny_vgg --dataset cifar10_600 --device cpu --out {tmp_path} --train-fraction .98"
    monkeypatch.setattr(sys, "argv", command.split())
    monkeypatch.setenv("LATES_DEBUG", "1")
    with pytest.raises(ValueError, match="Fractions have to be positive"):
        main()


def test_the_command_leaves_a_claimed_folder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"train --network tiny_vgg --dataset cifar10_600 --device cpu --epochs 1 --out {tmp_path / 'run'}"
    monkeypatch.setattr(sys, "argv", command.split())
    with (
        claimed(tmp_path / "run"),
        pytest.raises(SystemExit, match=rf"run is in the hands of process {os.getpid()} on "),
    ):
        main()
    assert [path.name for path in (tmp_path / "run").iterdir()] == [CLAIM]
    main()
    assert (tmp_path / "run" / "network.safetensors").exists()


# Several processes, and sudden death. Children start from a server that has imported torch and computed nothing.

PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(["torch._dynamo", "safetensors.torch", "PIL.Image", "hypothesis"])


def start(target: Callable[..., object], *arguments: object) -> BaseProcess:
    process = PROCESSES.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def run_to_end(target: Callable[..., object], *arguments: object) -> None:
    process = start(target, *arguments)
    process.join()
    assert process.exitcode == 0


def survived(process: BaseProcess) -> bool:
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode == 0


def train_in_group(rank: int, rendezvous: Path, folder: Path, max_seconds: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    data = load_sample(SAMPLE)[0]
    train_network(SHORT, plain_network(), data, seed=3, device="cpu", folder=folder, max_seconds=max_seconds)
    dist.destroy_process_group()


def test_two_processes_train_as_one_does(tmp_path: Path, images: ImageSet) -> None:
    """Stopped together after a step, begun again, and still one process's result but for rounding."""
    folder = tmp_path / "run"
    for life, max_seconds in enumerate((0.0, math.inf)):
        group = [start(train_in_group, rank, tmp_path / f"group{life}", folder, max_seconds) for rank in range(2)]
        for process in group:
            process.join()
        assert [process.exitcode for process in group] == [0, 0]
        if life == 0:
            _, facts = load_tensors(folder / "checkpoint.safetensors") or ({}, {})
            assert facts["progress"]["step"] == 1
    together, alone = plain_network(), plain_network()
    train_network(SHORT, together, images, seed=3, device="cpu", folder=folder, report=fail_if_trained)
    train_network(SHORT, alone, images, seed=3, device="cpu")
    for one, other in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def command_in_group(rank: int, rendezvous: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    sys.argv = f"train --network tiny_vgg --dataset cifar10_600 --device cpu --epochs 1 --out {folder}".split()
    main()


def test_two_processes_claim_a_folder_once_and_leave_a_claimed_one_together(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with claimed(folder):
        group = [start(command_in_group, rank, tmp_path / "refused", folder) for rank in range(2)]
        for process in group:
            process.join()
    assert [process.exitcode for process in group] == [1, 1]
    group = [start(command_in_group, rank, tmp_path / "trained", folder) for rank in range(2)]
    for process in group:
        process.join()
    assert [process.exitcode for process in group] == [0, 0]
    assert (folder / "network.safetensors").exists()


def train_in_steps(folder: Path, recipe: Recipe, began: Event | None = None) -> None:
    """A training that leaves a checkpoint after every step."""
    torch.set_num_threads(1)
    data = load_sample(SAMPLE)[0]
    network = dropout_network()
    if began is not None:
        began.set()
    train_network(recipe, network, data, seed=3, device="cpu", folder=folder, checkpoint_seconds=0)


def train_and_die(folder: Path, recipe: Recipe, fatal: int) -> None:
    """The same, but dead at the `fatal`-th moment at which it is about to open, flush, rename or remove a file.

    Death at a flush tears the file: half of what was written is gone, as after a power cut.
    """
    moments = itertools.count()
    flush = os.fsync

    def pass_moment(descriptor: int | None = None) -> None:
        if next(moments) == fatal:
            if descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "os.rename", "os.remove") and str(arguments[0]).startswith(str(folder)):
            pass_moment()

    def flush_unless_fatal(descriptor: int) -> None:
        pass_moment(descriptor)
        flush(descriptor)

    os.fsync = flush_unless_fatal
    sys.addaudithook(watch)
    train_in_steps(folder, recipe)


def final_state(folder: Path) -> tuple[dict[str, bytes], list[float]]:
    tensors, facts = load_tensors(folder / "network.safetensors") or ({}, {"progress": {"losses": []}})
    assert tensors
    assert [path.name for path in folder.iterdir()] == ["network.safetensors"]
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}, facts["progress"]["losses"]


@pytest.mark.slow
def test_death_at_any_write_changes_nothing(tmp_path: Path) -> None:
    recipe = replace(SHORT, epochs=1)
    run_to_end(train_in_steps, tmp_path / "whole", recipe)
    deaths = 0
    while not survived(start(train_and_die, tmp_path / f"dies{deaths}", recipe, deaths)):
        run_to_end(train_in_steps, tmp_path / f"dies{deaths}", recipe)
        assert final_state(tmp_path / f"dies{deaths}") == final_state(tmp_path / "whole"), deaths
        deaths += 1
    assert deaths >= 4 * 4, "three checkpoints and the network, each opened, flushed, renamed, its folder flushed"


@pytest.mark.slow
def test_death_at_twenty_moments_changes_nothing(tmp_path: Path) -> None:
    recipe, moments = replace(SHORT, epochs=25), random.Random(0)
    run_to_end(train_in_steps, tmp_path / "whole", recipe)
    _, facts = load_tensors(tmp_path / "whole" / "network.safetensors") or ({}, {})
    step_seconds = facts["progress"]["seconds"] / facts["progress"]["steps"]
    for _ in range(20):
        began = PROCESSES.Event()
        process = start(train_in_steps, tmp_path / "dies", recipe, began)
        assert began.wait(60)
        process.join(moments.uniform(0, 6) * step_seconds)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    _, facts = load_tensors(tmp_path / "dies" / "checkpoint.safetensors") or ({}, {"progress": {"step": 0}})
    assert facts["progress"]["step"] > 0
    run_to_end(train_in_steps, tmp_path / "dies", recipe)
    assert final_state(tmp_path / "dies") == final_state(tmp_path / "whole")
