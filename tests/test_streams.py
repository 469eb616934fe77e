"""Jobs at once, on a graphics card where there is one; elsewhere one after the other."""

from functools import partial

import pytest
import torch
from torch import Tensor

from lates.streams import group_jobs, side_by_side
from tests.test_devices import DEVICE


def itself(tensor: Tensor) -> tuple[Tensor]:
    return (tensor,)


def test_jobs_at_once_begin_after_their_caller_s_work_and_end_before_its_next() -> None:
    size = 4000 if DEVICE.type == "cuda" else 100  # enough to keep a card at work when the jobs begin
    ones = values = torch.ones(size, size, dtype=torch.float64, device=DEVICE)

    def multiplied(factor: int) -> Tensor:
        return factor * values

    side_by_side([partial(multiplied, 1)] * 2, DEVICE, tensors_of=itself)  # loads what is loaded once
    for _ in range(20):
        values = values @ ones / size + 1  # at each step another value, which memory used before does not hold
    doubled, trebled = side_by_side([partial(multiplied, 2), partial(multiplied, 3)], DEVICE, tensors_of=itself)
    torch.testing.assert_close((doubled + trebled).cpu(), torch.full((size, size), 5.0 * 21, dtype=torch.float64))


@pytest.mark.parametrize("place", [0, 1])
def test_a_job_s_error_is_the_caller_s(place: int) -> None:
    def fail() -> Tensor:
        raise RuntimeError("as it should")

    jobs = [partial(torch.ones, 1)] * 2
    jobs[place] = partial(fail)
    with pytest.raises(RuntimeError, match="as it should"):
        side_by_side(jobs, DEVICE, tensors_of=itself)


@pytest.mark.parametrize(
    ("device", "memory", "expected"),
    [
        ("cuda", 100, [["a", "b"], ["c", "d"], ["e"]]),
        ("cuda", 30, [["a", "b"], ["c"], ["d"], ["e"]]),
        ("cuda", 29, [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("cuda", 0, [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("cpu", 100, [["a"], ["b"], ["c"], ["d"], ["e"]]),
    ],
)
def test_only_a_card_takes_jobs_together_and_only_while_they_fit(
    device: str, memory: int, expected: list[list[str]]
) -> None:
    sizes = {"a": 10, "b": 20, "c": 30, "d": 40, "e": 50}
    assert group_jobs(sizes, memory, torch.device(device)) == expected
