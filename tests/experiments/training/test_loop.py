"""The loop is SGD as torch writes it, repeats itself, and refuses what it cannot train."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

from experiments.data.datasets import ImageSet, load_folder
from experiments.training.feeds import EpochDraws
from experiments.training.hyperparameters import Hyperparameters, learning_rates
from experiments.training.loop import train_network
from tests.experiments.training.trainings import ADAMW, SHORT, plain_network, same_weights


@pytest.mark.parametrize("hyper", [SHORT, replace(SHORT, nesterov=False, crop=0, milestones=(0.5,), factor=0.1), ADAMW])
def test_training_is_torchs_plain_optimiser(images: ImageSet, hyper: Hyperparameters) -> None:
    """The oracle: torch's plain optimiser, a rate set by hand, batches built image by image."""
    trained, reference = plain_network(), plain_network()
    progress = train_network(hyper, trained, images, seed=7, device="cpu")
    rates = learning_rates(hyper, 4).tolist()
    options = {"weight_decay": hyper.weight_decay, "foreach": False}
    if hyper.optimiser == "adamw":
        optimiser = torch.optim.AdamW(reference.parameters(), **options)
    else:
        optimiser = torch.optim.SGD(reference.parameters(), momentum=0.9, nesterov=hyper.nesterov, **options)
    draws = EpochDraws(400, hyper.batch, hyper.crop, 7, torch.device("cpu"))
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
    hyper = replace(SHORT, batch=20)
    from_files, from_memory = plain_network(), plain_network()
    stopped = train_network(hyper, from_files, files, seed=0, device="cpu", folder=tmp_path / "run", max_seconds=0, workers=0)
    assert stopped.step == 1
    train_network(hyper, from_files, files, seed=0, device="cpu", folder=tmp_path / "run", workers=1)
    train_network(hyper, from_memory, memory, seed=0, device="cpu")
    assert same_weights(from_files, from_memory)


def test_a_batch_larger_than_the_data_is_refused(images: ImageSet) -> None:
    with pytest.raises(ValueError, match="A batch of 500 needs as many images; got 400"):
        train_network(replace(SHORT, batch=500), plain_network(), images, seed=0, device="cpu")


def test_divergence_is_an_error_not_a_network(tmp_path: Path, images: ImageSet) -> None:
    with pytest.raises(FloatingPointError, match="Training diverged"):
        train_network(replace(SHORT, rate=1e20), plain_network(), images, seed=0, device="cpu", folder=tmp_path)
    assert not (tmp_path / "network.safetensors").exists()
