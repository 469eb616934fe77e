"""TREC-6, questions of six kinds, and a MiniLM fine-tuned on them by the `Trainer` of transformers."""

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
)

import lates
from experiments.text_and_tables.problem import CLEAN, Families, Problem

FAMILIES = Families(("typos", "filler", "order"), ("dropped",))
OFFICIAL = "official"
HELD, TESTED, CLASSES = 1000, 1000, 6
EPOCHS, BATCH, RATE = 4, 32, 1e-4
SPLIT_SEED, SHIFT_SEED = 0, 1
PHRASES = (
    "could you please tell me",
    "hello i was wondering",
    "my friend asked me this today",
    "sorry to bother you but",
    "i need a quick answer",
    "just out of curiosity",
)
Question = tuple[str, int]


def make_problem(folder: Path, encoder: Path, seed: int) -> Problem:
    """`folder` holds train.csv and test.csv, lines of "kind,question"; `encoder` the network and its tokenizer."""
    train, holdout, test = read_splits(folder / "train.csv")
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    official = [question for question in read_questions(folder / "test.csv") if question not in {*train, *holdout}]
    return Problem(
        model=fine_tune(encoder, tokenizer, train, seed),
        train=batches(train, tokenizer),
        holdout=shifted_loaders(holdout, tokenizer),
        test={**shifted_loaders(test, tokenizer), OFFICIAL: batches(official, tokenizer)},
        views={
            "mask .15": lates.views.mask_tokens(tokenizer, 0.15),
            "mask .3": lates.views.mask_tokens(tokenizer, 0.3),
            "drop .15": lates.views.drop_tokens(tokenizer, 0.15),
        },
        budget=0.01,
    )


def read_questions(path: Path) -> list[Question]:
    """Without repetitions, in the order of the file."""
    pairs = (line.split(",", 1) for line in path.read_text("utf-8").splitlines())
    return list({question: (question, int(kind)) for kind, question in pairs}.values())


def read_splits(path: Path) -> list[list[Question]]:
    questions = read_questions(path)
    random.Random(SPLIT_SEED).shuffle(questions)
    return [questions[HELD + TESTED :], questions[:HELD], questions[HELD : HELD + TESTED]]


def batches(questions: Sequence[Question], tokenizer: PreTrainedTokenizerBase) -> list[dict[str, Tensor]]:
    """In the order of the questions; each padded to the longest of its batch."""
    parts = [questions[start : start + 50] for start in range(0, len(questions), 50)]
    return [
        {
            **tokenizer([text for text, _ in part], padding=True, return_tensors="pt"),
            "labels": torch.tensor([kind for _, kind in part]),
        }
        for part in parts
    ]


def fine_tune(
    encoder: Path, tokenizer: PreTrainedTokenizerBase, questions: Sequence[Question], seed: int
) -> PreTrainedModel:
    with torch.random.fork_rng([]), tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=CLASSES)
        arguments = TrainingArguments(
            folder,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=BATCH,
            learning_rate=RATE,
            seed=seed,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        rows: Any = [{**tokenizer(text), "labels": kind} for text, kind in questions]
        Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer).train()
    return model.eval()


def shifted_loaders(
    questions: Sequence[Question], tokenizer: PreTrainedTokenizerBase
) -> dict[str, list[dict[str, Tensor]]]:
    source = random.Random(SHIFT_SEED)
    changes: dict[str, Callable[[list[str]], list[str]]] = {CLEAN: lambda words: words}
    for strength, typos, moved, dropped in ((1, 0.2, 0.2, 0.15), (2, 0.5, 0.4, 0.3)):
        changes |= {
            f"typos {strength}": lambda words, share=typos: misspell(words, share, source),
            f"filler {strength}": lambda words, count=strength: [*source.sample(PHRASES, count), *words],
            f"order {strength}": lambda words, share=moved: reorder(words, share, source),
            f"dropped {strength}": lambda words, share=dropped: drop(words, share, source),
        }
    changed = {
        name: [(" ".join(changes[name](text.split())), kind) for text, kind in questions] for name in FAMILIES.sets
    }
    return {name: batches(texts, tokenizer) for name, texts in changed.items()}


def misspell(words: Sequence[str], share: float, source: random.Random) -> list[str]:
    """In a share of the words of four letters or more two inner letters trade places, or one is lost or doubled."""

    def change(word: str) -> str:
        place = source.randrange(1, len(word) - 2)
        first, second = word[place], word[place + 1]
        inner = source.choice((second + first, second, first + first + second))
        return word[:place] + inner + word[place + 2 :]

    return [change(word) if len(word) >= 4 and source.random() < share else word for word in words]


def reorder(words: Sequence[str], share: float, source: random.Random) -> list[str]:
    """A share of neighbouring words trade places."""
    changed = list(words)
    for place in range(len(changed) - 1):
        if source.random() < share:
            changed[place], changed[place + 1] = changed[place + 1], changed[place]
    return changed


def drop(words: Sequence[str], share: float, source: random.Random) -> list[str]:
    """A share of the words are left out, but never all."""
    return [word for word in words if source.random() >= share] or list(words[:1])
