import torch

from experiments.data.shifts import FAMILIES, draw_lines, occlude, shifted_sets, turn_hue


def draw(n: int = 6) -> torch.Tensor:
    return torch.rand(n, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_every_family_changes_images_within_their_range_and_repeats_from_its_seed() -> None:
    images = draw()
    sets, again = shifted_sets(images, seed=1), shifted_sets(images, seed=1)
    assert tuple(dict.fromkeys(name.split("/")[0] for name in sets)) == tuple(FAMILIES)
    for name, changed in sets.items():
        assert changed.shape == images.shape
        assert not torch.equal(changed, images)
        assert 0 <= float(changed.min()) <= float(changed.max()) <= 1
        assert torch.equal(changed, again[name])


def test_patches_lines_and_hues_are_as_large_as_stated() -> None:
    images, generator = draw(), torch.Generator().manual_seed(0)
    assert ((occlude(images, 12, generator) != images).any(1).sum((1, 2)) == 144).all()
    grey = torch.full_like(images, 0.5)
    assert torch.equal(turn_hue(grey, 40, generator), grey)
    changed = (draw_lines(grey, 1, generator) != grey)[:, 0]
    assert (changed.sum((1, 2)) == 32).all()
