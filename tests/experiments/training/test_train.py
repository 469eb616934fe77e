"""The command `python -m experiments.train`: what it says, refuses and claims."""

import re
from pathlib import Path

import pytest

from experiments.runner.claims import CLAIM, claimed
from experiments.train import main
from tests.experiments.data.cifar_files import write_cifar10

TINY = ["--network", "tiny_vgg", "--dataset", "cifar10_600", "--device", "cpu", "--epochs", "1"]


def test_the_command_trains_loads_and_stops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_cifar10(tmp_path / "data").parent
    command = [*TINY, "--dataset", "cifar10", "--data", str(data), "--out"]
    main([*command, str(tmp_path / "run")])
    assert "epoch 1/1  loss 2." in capsys.readouterr().out
    main([*command, str(tmp_path / "run")])
    assert capsys.readouterr().out.startswith("test accuracy 0.")
    main([*command, str(tmp_path / "stopped"), "--max-seconds", "0"])
    assert "stopped after step 1 of 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--dataset cifar10 --data {folder}", r"Error: No cifar-10-batches-py in .*leave --data out"),
        ("--dataset imagenet --data {folder}", r"Error: .*train has no folders"),
        ("--train-fraction .98", r"Error: Fractions have .* got train 0\.98, hold-out 0\.1\.$"),
        ("--device gpu", r'Error: Unknown --device "gpu"'),
        ("--out {folder}/file/below", r"Error: .*file/below: Not a directory\.$"),
    ],
)
def test_the_command_refuses_wrong_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, message: str
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as end:
        main([*TINY, "--out", str(tmp_path / "run"), *options.format(folder=tmp_path).split()])
    assert end.value.code == 1
    assert re.match(message, capsys.readouterr().err)


def test_the_command_leaves_a_claimed_folder_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*TINY, "--out", str(tmp_path / "run")]
    with claimed(tmp_path / "run"), pytest.raises(SystemExit):
        main(command)
    assert "run is in use by another process" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "run").iterdir()] == [CLAIM]
    main(command)
    assert (tmp_path / "run" / "network.safetensors").exists()
