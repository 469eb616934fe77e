"""The flow is the folder tree: imports between packages go one way, and nothing heavy is imported unasked."""

import ast
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import takewhile
from pathlib import Path

import pytest

import lates

ROOT = Path(lates.__file__).parent
CORE = {"settings", "runtime", "network", "stack", "probes", "model"}
MAY_IMPORT = {
    "settings": set[str](),
    "binomial": set[str](),
    "runtime": {"settings"},
    "network": {"settings", "runtime"},
    "stack": {"settings", "runtime", "binomial"},
    "probes": {"settings", "runtime", "network", "stack"},
    "model": {"settings", "runtime", "network", "stack", "probes"},
    "arguments": CORE,
    "algorithm": CORE | {"arguments"},
    "metrics": {"runtime", "binomial"},
    "plot": CORE | {"metrics"},
    "estimators": CORE,
    "export": CORE,
    "report": CORE | {"metrics"},
    "integrations": CORE | {"algorithm", "metrics", "report"},
    "demo": CORE | {"algorithm", "metrics", "report", "lates"},
    "cli": CORE | {"algorithm", "metrics", "report", "export", "demo", "lates"},
    "__main__": {"cli"},
}
"""Package, or file beside them -> what it may import; "lates" stands for the public names."""

UNASKED = {
    "altair",
    "vl_convert",
    "matplotlib",
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


def imported_modules(path: Path) -> Iterator[str]:
    """The modules of `lates` that a file imports, anywhere in it, without the leading "lates."."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("lates.") for alias in node.names if alias.name.startswith("lates"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            if node.module == "lates":
                yield from (alias.name if alias.name in MAY_IMPORT else "lates" for alias in node.names)
            elif (node.module or "").startswith("lates."):
                yield str(node.module).removeprefix("lates.")


def test_every_package_is_listed() -> None:
    packages = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")}
    assert packages - {"__init__"} == set(MAY_IMPORT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_lower_packages_through_their_init(package: str) -> None:
    files = (ROOT / package).rglob("*.py") if (ROOT / package).is_dir() else [ROOT / f"{package}.py"]
    for path in files:
        outside = {name for name in imported_modules(path) if name.split(".")[0] != package}
        assert outside <= MAY_IMPORT[package], path.relative_to(ROOT)


@pytest.mark.parametrize("package", sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
def test_a_package_and_the_documentation_list_its_files(package: str) -> None:
    design = (ROOT.parents[1] / "docs" / "design.md").read_text("utf-8")
    row = re.search(rf"^\| `{package}` \|.*\| (.*) \|$", design, re.MULTILINE)
    assert row is not None
    listed = re.findall(r"`(\w+)`", row[1])
    assert {*listed} == {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    if package != "metrics":  # whose docstring is a page of the reference
        lines = (import_module(f"lates.{package}").__doc__ or "").strip().splitlines()[2:]
        assert [line.split()[0] for line in takewhile(str.strip, lines)] == listed


@pytest.mark.parametrize("package", ["data", "training", "evaluation", "runner", "reporting"])
def test_a_package_of_the_experiments_lists_its_files(package: str) -> None:
    lines = (import_module(f"experiments.{package}").__doc__ or "").strip().splitlines()[2:]
    folder = ROOT.parents[1] / "experiments" / package
    files = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {line.split()[0] for line in lines} == files - {"__init__"}


def test_the_experiments_use_public_names_alone() -> None:
    for path in (ROOT.parents[1] / "experiments").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("lates.") for alias in node.names), path
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lates":
                assert node.module in ("lates", "lates.metrics"), path
                assert node.module != "lates" or {alias.name for alias in node.names} <= {*lates.__all__}, path


CALIBRATE = """
import sys, torch
before = set(sys.modules)
import lates
network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 2))
split, holdout = ([(torch.randn(100, 2), torch.arange(100) % 2)] for _ in range(2))
lates.calibrate(network, train=split, holdout=holdout, budget=None, progress=False)
import lates.report, lates.plot
print(*(set(sys.modules) - before))
"""


def test_neither_import_nor_calibration_imports_what_nobody_asked_for() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    done = subprocess.run([sys.executable, "-c", CALIBRATE], capture_output=True, text=True, env=environment, check=True)
    loaded = done.stdout.split()
    assert {"lates.algorithm", "lates.metrics", "lates.report"} <= set(loaded)
    assert UNASKED.isdisjoint(loaded)


@pytest.mark.parametrize("name", lates.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    public = getattr(lates, name)
    documented = type(public) if isinstance(public, lates.Settings) else public
    assert len(inspect.getdoc(documented) or "") > 40


def test_the_table_of_public_names_matches_the_typed_imports() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text("utf-8"))
    inner = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and str(node.module).startswith("lates")]
    brought = {alias.name for node in inner for alias in node.names}
    assert sorted(brought) == sorted(lates.__all__)
