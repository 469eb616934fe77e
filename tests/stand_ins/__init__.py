"""What recipes need and tests do not have, tiny: packages, copied into the current folder, and an encoder with text."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

FOLDER = Path(__file__).parent
KINDS, QUESTIONS = 6, 2200
SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def place_package(name: str) -> dict[str, Any]:
    """A package of that name, which shadows an installed one; the page itself takes nothing for granted."""
    shutil.copy(FOLDER / f"{name}.py", f"{name}.py")
    return {}


def place_trec() -> dict[str, Any]:
    """Questions whose words tell their kind, and a tiny encoder where the recipe looks for its own."""
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
    source = random.Random(0)
    words = [f"w{number}" for number in range(60)]

    def ask(kind: int) -> str:
        of_kind = words[kind * 10 : kind * 10 + 10]
        return " ".join(source.choice(source.choice((words, of_kind))) for _ in range(source.randint(4, 9)))

    Path("trec").mkdir()
    for file, count in {"train.csv": QUESTIONS, "test.csv": 60}.items():
        lines = [f"{number % KINDS},{ask(number % KINDS)} q{number}\n" for number in range(count)]
        Path("trec", file).write_text("".join(lines), "utf-8")
    _save_encoder(Path("sentence-transformers/all-MiniLM-L6-v2"), words)
    return {}


def _save_encoder(folder: Path, words: list[str]) -> None:
    vocabulary = {word: number for number, word in enumerate([*SPECIAL.values(), *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL).save_pretrained(folder)
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    BertModel(BertConfig(vocab_size=len(vocabulary), **sizes)).save_pretrained(folder)
