"""The command `python -m experiments.train`: what it says, refuses and claims."""

import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from experiments.claims import CLAIM, claimed
from experiments.train import main
from tests.experiments.children import exit_codes, start
from tests.experiments.cifar_files import write_cifar10


def test_the_command_trains_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_cifar10(tmp_path / "data").parent
    command = f"train --network tiny_vgg --dataset cifar10 --data {data} --epochs 1 --device cpu --out"
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


def command_in_group(rank: int, rendezvous: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    sys.argv = f"train --network tiny_vgg --dataset cifar10_600 --device cpu --epochs 1 --out {folder}".split()
    main()


def test_two_processes_claim_a_folder_once_and_leave_a_claimed_one_together(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with claimed(folder):
        group = [start(command_in_group, rank, tmp_path / "refused", folder) for rank in range(2)]
        assert exit_codes(group) == [1, 1]
    group = [start(command_in_group, rank, tmp_path / "trained", folder) for rank in range(2)]
    assert exit_codes(group) == [0, 0]
    assert (folder / "network.safetensors").exists()
