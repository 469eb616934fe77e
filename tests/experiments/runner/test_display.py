"""What the command shows of progress."""

import itertools

from experiments.runner.display import Lines


def test_progress_is_a_line_for_each_stage_its_end_and_every_ten_seconds() -> None:
    seconds = itertools.count(0, 4)
    lines: list[str] = []
    show = Lines(lines.append, lambda: next(seconds))
    for done in (0, 10, 20, 30, 40, 100):
        show("[1/3] cifar10-resnet18-s0", "training", done, 100)
    show("[1/3] cifar10-resnet18-s0", "failed: " + "Its reason has quite a few words. " * 5, 0, 1)
    texts = [" ".join(line.split()[2:5]) for line in lines]
    assert texts == ["training", "training 30%", "training 100%", "failed: Its reason"]
    assert max(len(line) for text in lines for line in text.splitlines()) <= 80
