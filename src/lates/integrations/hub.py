"""A calibration as a folder in the layout of the Hugging Face hub: config.json, the calibration, a model card.

The network is not included: keep the folder inside the network's, or in a separate repository. Nothing here goes online: use
huggingface_hub to upload and download the folder.

>>> hub.save_pretrained(calibrated, "resnet18-lates", measured={"network": before, "calibrated": after})
>>> huggingface_hub.upload_folder(repo_id="me/resnet18-lates", folder_path="resnet18-lates")
>>> folder = huggingface_hub.snapshot_download("me/resnet18-lates")
>>> calibrated = hub.from_pretrained(folder, model)
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import nn

from lates.model import CalibratedModel, load
from lates.runtime import write_whole

CONFIG, CALIBRATION, CARD = "config.json", "calibration.lates.safetensors", "README.md"
LIBRARY = "lates"


def save_pretrained(
    calibrated: CalibratedModel,
    folder: str | os.PathLike[str],
    *,
    title: str = "A calibrated classifier",
    measured: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Write the calibration, its numbers as JSON and a model card to a folder, which is created if missing.

    measured   method -> metrics on a test set, as `lates.metrics.summary` returns them: the rows of a table in the card
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    config = target / CONFIG
    if config.exists() and not _is_ours(config):
        raise FileExistsError(
            f"{target} holds the {CONFIG} of another model, which would be lost. Save to a separate folder, such as "
            f"{target / LIBRARY}."
        )
    calibrated.save(target / CALIBRATION)
    content = {
        "library": LIBRARY,
        "calibration": CALIBRATION,
        "networks": len(calibrated.networks),
        "samples": calibrated.samples,
        "weights": calibrated.weights,
        "contributions": calibrated.contributions,
        "added_parameters": calibrated.added_parameters,
        "fit": calibrated.fit.numbers,
    }
    write_whole(config, (json.dumps(content, indent=2) + "\n").encode())
    write_whole(target / CARD, write_card(calibrated, title, measured or {}).encode())


def from_pretrained(folder: str | os.PathLike[str], model: nn.Module | Sequence[nn.Module]) -> CalibratedModel:
    """Load the calibration in a folder written by `save_pretrained`, for the model or models that it was made for."""
    config = Path(folder) / CONFIG
    if not config.is_file():
        raise FileNotFoundError(
            f"There is no {CONFIG} in {folder}: expected a local folder that save_pretrained wrote. To download "
            "one from the hub, use huggingface_hub.snapshot_download."
        )
    if not _is_ours(config):
        raise ValueError(f"{config} is not of {LIBRARY}: expected a folder that save_pretrained wrote.")
    return load(Path(folder) / CALIBRATION, model)


def write_card(calibrated: CalibratedModel, title: str, measured: Mapping[str, Mapping[str, float]]) -> str:
    """The model card, in Markdown: what it is, what was measured, the contributions, how to load it."""
    fit = calibrated.fit
    losses = {"network": fit.nll_network, "temperature scaling": fit.nll_temperature, "this calibration": fit.nll}
    contributions = [[f"`{_line(name)}`", f"{share:.3f}"] for name, share in calibrated.contributions.items() if share > 0]
    metrics = list(dict.fromkeys(metric for values in measured.values() for metric in values))
    rows = [[name, *(f"{values[m]:.4f}" if m in values else "" for m in metrics)] for name, values in measured.items()]
    parts = [
        f"---\nlibrary_name: {LIBRARY}\ntags:\n- calibration\n- layer-stack-temperature-scaling\n---",
        f"# {_line(title)}",
        "A calibration by layer-stack temperature scaling (`lates`): a weighted sum of the network's logits and those of "
        f"linear probes on its blocks, over {fit.classes} classes. It has {calibrated.added_parameters:,} parameters; the "
        "network is not included.",
        f"## Measured\n\nLog-loss on the hold-out of {fit.rows:,} rows, on which the weights were fitted to {fit.loss} "
        f"({fit.outcome}); expect worse values on new data:",
        _table(["method", "nll"], [[name, f"{value:.4f}"] for name, value in losses.items()]),
        *(["On a test set:", _table(["method", *metrics], rows)] if measured else []),
        "## Contributions",
        _table(["member", "contribution"], contributions),
        "## Use",
        "```python\nfrom lates.integrations import hub\n\n"
        'calibrated = hub.from_pretrained("this-folder", model)  # the network it was made for\n'
        "probabilities = calibrated.predict_proba(inputs)\n```",
        "The probabilities are calibrated for data like the hold-out. Measure on your own data before you rely on them.",
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_line(cell).replace('|', '&#124;') for cell in line)} |" for line in lines)


def _line(text: str) -> str:
    return " ".join(text.split())


def _is_ours(config: Path) -> bool:
    try:
        content = json.loads(config.read_text("utf-8"))
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"{config} is not JSON ({fault}). Save the calibration again, to a separate folder.") from fault
    return isinstance(content, dict) and content.get("library") == LIBRARY
