"""Text: a tiny BERT, with batches as the Trainer of transformers makes them: padded, with labels. Needs `transformers`.

Made-up sentences of 8 to 24 words: most say nothing, one in six is of the sentence's topic, one in six of any topic.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

import lates

TOPICS, WORDS, LENGTH = 4, 64, 24
CONFIG: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "num_labels": TOPICS}
Batch = dict[str, Tensor]


def draw_batches(sentences: int, seed: int) -> list[Batch]:
    """Words of topic t leave the remainder t when divided by 8; those that leave 4 or more say nothing; 0 is padding."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(TOPICS, (sentences,), generator=generator)
    shape = sentences, LENGTH
    ids = torch.randint(1, WORDS // 8, shape, generator=generator) * 8 + torch.randint(4, 8, shape, generator=generator)
    any_topic = torch.randint(TOPICS, shape, generator=generator)
    chance = torch.rand(shape, generator=generator)
    ids = torch.where(chance < 1 / 3, ids // 8 * 8 + torch.where(chance < 1 / 6, labels[:, None], any_topic), ids)
    mask = torch.arange(LENGTH) < torch.randint(8, LENGTH + 1, (sentences, 1), generator=generator)
    columns = {"input_ids": ids * mask, "attention_mask": mask.long(), "labels": labels}
    return [{name: values[rows] for name, values in columns.items()} for rows in torch.arange(sentences).split(100)]


def train_network(batches: list[Batch]) -> nn.Module:
    network = BertForSequenceClassification(BertConfig(vocab_size=WORDS, intermediate_size=64, **CONFIG))
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    for batch in batches * 6:
        optimiser.zero_grad()
        network(**batch).loss.backward()
        optimiser.step()
    return network.eval()


def main() -> None:
    torch.manual_seed(0)
    train, holdout, test = draw_batches(1500, seed=1), draw_batches(1000, seed=2), draw_batches(1500, seed=3)
    network = train_network(train)
    temperature = lates.calibrate(network, holdout=holdout, blocks=[])
    calibrated = lates.calibrate(network, train=train, holdout=holdout, budget=None)
    print(calibrated, "\n")

    labels = torch.cat([batch.pop("labels") for batch in test])
    for name, model in {"temperature": temperature, "LATES": calibrated}.items():
        probabilities = torch.cat([model.predict_proba(batch) for batch in test])
        measured = lates.metrics.summary(probabilities.log(), labels)
        print(f"{name:<12} nll {measured['nll']:.3f}  accuracy {measured['accuracy']:.3f}  ece {measured['ece']:.3f}")


if __name__ == "__main__":
    main()
