"""A calibration as a folder in the layout of the Hugging Face hub: written, read by the hub's own tools, put on again."""

import json
import re
from pathlib import Path

import huggingface_hub
import pytest
import torch

import lates
from lates.integrations.hub import from_pretrained, save_pretrained
from tests.conftest import Problem, ResidualNetwork

FILES = ["README.md", "calibration.lates.safetensors", "config.json"]


def test_saved_calibration_computes_the_same_and_its_config_says_so(
    problem: Problem, calibrated: lates.CalibratedModel, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "folder"
    save_pretrained(calibrated, folder)
    save_pretrained(calibrated, str(folder))
    assert sorted(path.name for path in folder.iterdir()) == FILES
    again = from_pretrained(str(folder), problem.model)
    assert torch.equal(again.predict_proba(problem.images), calibrated.predict_proba(problem.images))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert (config["library"], config["calibration"]) == ("lates", FILES[1])
    assert config["weights"] == again.weights == calibrated.weights
    assert config["contributions"] == calibrated.contributions
    assert config["fit"]["nll"] == calibrated.fit.nll


def test_card_is_valid_and_states_the_numbers(problem: Problem, calibrated: lates.CalibratedModel, tmp_path: Path) -> None:
    with torch.no_grad():
        logits = {"network": problem.model(problem.images), "calibrated": calibrated(problem.images)}
    measured = {name: lates.metrics.summary(values, problem.labels) for name, values in logits.items()}
    save_pretrained(calibrated, tmp_path, title="Patterns | noisy\n# and a heading", measured=measured)
    card = huggingface_hub.ModelCard.load(tmp_path / "README.md")
    assert card.data.to_dict()["library_name"] == "lates"
    assert re.findall("^# .*", card.text, flags=re.MULTILINE) == ["# Patterns | noisy # and a heading"]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in card.text.splitlines() if line[:1] == "|"]
    assert ["this calibration", f"{calibrated.fit.nll:.4f}"] in table
    assert ["temperature scaling", f"{calibrated.fit.nll_temperature:.4f}"] in table
    for name, values in measured.items():
        assert [name, *(f"{value:.4f}" for value in values.values())] in table
    voting = {f"`{name}`": f"{share:.3f}" for name, share in calibrated.contributions.items() if share > 0}
    assert [row for row in table if row[0].startswith("`")] == [list(pair) for pair in voting.items()]


def test_from_pretrained_refuses_another_network(calibrated: lates.CalibratedModel, tmp_path: Path) -> None:
    save_pretrained(calibrated, tmp_path)
    with pytest.raises(ValueError, match="was made for another network"):
        from_pretrained(tmp_path, ResidualNetwork(width=14))


def test_save_pretrained_never_overwrites_another_models_config(
    problem: Problem, calibrated: lates.CalibratedModel, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "resnet"}')
    with pytest.raises(FileExistsError, match=r"config.json of another model, .* such as .*lates\."):
        save_pretrained(calibrated, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert config.read_text() == '{"model_type": "resnet"}'
    with pytest.raises(ValueError, match="is not of lates"):
        from_pretrained(tmp_path, problem.model)
    for content in (b"{", b"[" * 10**5, b"9" * 5000, "{}".encode("utf-16")):
        config.write_bytes(content)
        with pytest.raises(ValueError, match=r"config\.json is not JSON"):
            from_pretrained(tmp_path, problem.model)
    with pytest.raises(FileNotFoundError, match=r"There is no config\.json in .*huggingface_hub\.snapshot_download"):
        from_pretrained(tmp_path / "none", problem.model)
