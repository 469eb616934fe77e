"""What the pages of the documentation take for granted: small real networks, loaders and arrays, by the names they use."""

from types import SimpleNamespace
from typing import Any

import torch
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

import lates
from tests.conftest import CLASSES, Problem, draw_patterns, loader_of
from tests.integrations.test_lightning import Classifier


def names_of_images(problem: Problem, ensemble: list[nn.Module]) -> dict[str, Any]:
    noise = torch.randn(problem.images.shape, generator=torch.Generator().manual_seed(7))
    return {
        "model": problem.model,
        "other_model": ensemble[1],
        "dataset": TensorDataset(*draw_patterns(200, CLASSES, seed=4)),
        "train_loader": problem.train,
        "holdout_loader": problem.holdout,
        "test_loader": loader_of(problem.images, problem.labels),
        "noisy_loader": loader_of(problem.images + noise, problem.labels),
        "images": problem.images,
        "labels": problem.labels,
        "class_names": [f"pattern {c}" for c in range(CLASSES)],
    }


def names_of_text() -> dict[str, Any]:
    """A tiny BERT with random weights; batches as its `Trainer` makes them."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 3}
    model = BertForSequenceClassification(BertConfig(vocab_size=50, intermediate_size=16, **sizes)).eval()

    def batches(count: int) -> list[dict[str, Tensor]]:
        lengths = torch.randint(3, 9, (40, 1))
        mask = (torch.arange(8) < lengths).long()
        drawn = ({"input_ids": torch.randint(50, (40, 8)), "labels": torch.randint(3, (40,))} for _ in range(count))
        return [{**batch, "attention_mask": mask} for batch in drawn]

    train, holdout, (batch,) = batches(5), batches(5), batches(1)
    inputs = {name: values for name, values in batch.items() if name != "labels"}
    return {"model": model, "train_loader": train, "holdout_loader": holdout, "batch": batch, "inputs": inputs}


def names_of_tokenizer() -> dict[str, Any]:
    """The same, with what is read of a tokenizer, and `options` as the page made them."""
    names = names_of_text()
    tokenizer = SimpleNamespace(all_special_ids=[0, 1, 2], mask_token_id=2, unk_token_id=1)
    options = {"train": names["train_loader"], "holdout": names["holdout_loader"]}
    return {**names, "lates": lates, "tokenizer": tokenizer, "options": options}


def names_of_table() -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)).eval()
    loaders = [DataLoader(TensorDataset(torch.randn(200, 6), torch.randint(3, (200,))), batch_size=50) for _ in range(2)]
    return {"model": model, "train_loader": loaders[0], "holdout_loader": loaders[1], "rows": torch.randn(9, 6)}


def names_of_logits() -> dict[str, Any]:
    """Numpy arrays: two members, of which labels were drawn, and the head's probabilities."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(600, 4, generator=generator)
    labels = torch.multinomial(truth.softmax(1), 1, generator=generator)[:, 0]
    head, probe = (3 * (truth + torch.randn(truth.shape, generator=generator)) for _ in range(2))
    holdout, test = slice(0, 300), slice(300, 600)
    return {
        "logits": head[holdout].numpy(),
        "probe_logits": probe[holdout].numpy(),
        "labels": labels[holdout].numpy(),
        "confidences": head[holdout].softmax(1).numpy(),
        "test_logits": head[test].numpy(),
        "test_labels": labels[test].numpy(),
        "test_confidences": head[test].softmax(1).numpy(),
    }


def names_of_sklearn() -> dict[str, Any]:
    rows, labels = make_classification(900, n_informative=6, n_classes=3, random_state=0)
    classifier = RandomForestClassifier(20, random_state=0).fit(rows[:300], labels[:300])
    return {
        "classifier": classifier,
        "rows": rows[:300],
        "labels": labels[:300],
        "held_rows": rows[300:600],
        "held_labels": labels[300:600],
        "test_rows": rows[600:],
    }


def names_of_lightning() -> dict[str, Any]:
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    return {"module": Classifier(network)}
