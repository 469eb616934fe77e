"""The flow is the folder: a file imports only files above it in this list, and nothing heavy unasked."""

import ast
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lates

ROOT = Path(lates.__file__).parent
ORDER = [
    "settings",
    "threads",
    "streams",
    "checks",
    "progress",
    "memory",
    "team",
    "batches",
    "blocks",
    "copies",
    "taps",
    "views",
    "pooling",
    "shares",
    "rows",
    "recording",
    "features",
    "losses",
    "holdout",
    "newton",
    "objective",
    "stack",
    "mixture",
    "lbfgs",
    "standardised",
    "linear",
    "descent",
    "sgd",
    "probes",
    "budget",
    "sampling",
    "votes",
    "storage",
    "voters",
    "model",
    "algorithm",
    "metrics.rows",
    "metrics.columns",
    "metrics.scores",
    "metrics.calibration",
    "metrics.ranking",
    "metrics.smoothing",
    "metrics.intervals",
    "metrics.overview",
    "metrics",
    "estimators",
    "report.predictions",
    "report.resampling",
    "report.numbers",
    "report.words",
    "report.picture",
    "report.frame",
    "report.layers",
    "report.charts",
    "report.sections",
    "report.page",
    "report",
    "export",
    "integrations",
    "integrations.loggers",
    "integrations.hub",
    "integrations.torchmetrics",
    "integrations.lightning",
    "demo.images",
    "demo.network",
    "demo.shifts",
    "demo.training",
    "demo.comparison",
    "demo.table",
    "demo.page",
    "demo",
    "cli.outcomes",
    "cli.options",
    "cli.outputs",
    "cli.torchrun",
    "cli.cached",
    "cli.fitted",
    "cli.checkpoint",
    "cli.sources",
    "cli.contents",
    "cli.measures",
    "cli.demo",
    "cli.inspect",
    "cli.fit",
    "cli.calibrate",
    "cli.evaluate",
    "cli.report",
    "cli.export",
    "cli",
    "__main__",
]
USERS_OF_THE_WHOLE = ("demo", "cli")
UNASKED = {
    "altair",
    "vl_convert",
    "rich",
    "typer",
    "torchvision",
    "timm",
    "transformers",
    "sklearn",
    "scipy",
    "torchmetrics",
    "lightning",
    "onnx",
    "torch._dynamo",
}


def file_of(name: str) -> Path:
    path = ROOT / name.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(tree: ast.Module) -> Iterator[str]:
    """The files of this package that a file imports, anywhere in it; "" for the package itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[2] for alias in node.names if alias.name.split(".")[0] == "lates")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            if node.module == "lates":
                yield from (alias.name if alias.name in ORDER else "" for alias in node.names)
            elif (node.module or "").startswith("lates."):
                yield str(node.module).removeprefix("lates.")


def test_every_file_is_in_the_list() -> None:
    found = {name_of(path) for path in ROOT.rglob("*.py")} - {"__init__"}
    assert found == set(ORDER)
    assert len(ORDER) == len(set(ORDER))


@pytest.mark.parametrize("name", ORDER)
def test_a_file_imports_only_files_above_it(name: str) -> None:
    above = set(ORDER[: ORDER.index(name)])
    allowed = above | ({""} if name.split(".")[0] in USERS_OF_THE_WHOLE else set())
    assert set(imported(ast.parse(file_of(name).read_text("utf-8")))) <= allowed


@pytest.mark.parametrize("name", ORDER)
def test_no_function_shares_its_module_s_name(name: str) -> None:
    tree = ast.parse(file_of(name).read_text("utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert name.split(".")[-1] not in functions


def test_no_public_name_hides_a_file() -> None:
    assert {name for name in lates.__all__ if name in ORDER} == {"metrics", "views"}


def test_the_experiments_use_public_names_alone() -> None:
    for path in (ROOT.parents[1] / "experiments").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("lates.") for alias in node.names), path
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lates":
                assert node.module in ("lates", "lates.metrics", "lates.views"), path
                assert node.module != "lates" or {alias.name for alias in node.names} <= {*lates.__all__}, path


CALIBRATE = """
import sys, torch
before = set(sys.modules)
import lates
network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 2))
split, holdout = ([(torch.randn(100, 2), torch.arange(100) % 2)] for _ in range(2))
lates.calibrate(network, train=split, holdout=holdout, budget=None, progress=False)
print(*(set(sys.modules) - before))
"""


def test_neither_import_nor_calibration_imports_what_nobody_asked_for() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    done = subprocess.run(
        [sys.executable, "-c", CALIBRATE], capture_output=True, text=True, env=environment, check=True
    )
    loaded = done.stdout.split()
    assert "lates.algorithm" in loaded
    assert UNASKED.isdisjoint(loaded)


@pytest.mark.parametrize("name", lates.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    public = getattr(lates, name)
    documented = type(public) if isinstance(public, lates.Settings) else public
    assert len(inspect.getdoc(documented) or "") > 40


def test_all_names_what_is_brought_in() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text("utf-8"))
    inner = [
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and str(node.module).startswith("lates")
    ]
    brought = {alias.name for node in inner for alias in node.names}
    assert sorted(brought) == sorted(lates.__all__)
