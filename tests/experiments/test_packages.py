"""Imports between the packages of the experiments go one way."""

import ast
from pathlib import Path

import pytest

import experiments

ROOT = Path(str(experiments.__file__)).parent
MAY_IMPORT = {
    "data": set[str](),
    "training": {"data"},
    "evaluation": {"data", "training"},
    "recipes": {"data", "training"},
    "runner": {"data", "training", "evaluation", "recipes"},
    "reporting": {"data", "evaluation", "recipes", "runner"},
    "__main__": {"recipes", "runner"},
}
"""Package, or file beside them -> what it may import."""


def packages_imported_by(path: Path) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            modules.add(node.module or "")
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return {module.split(".")[1] for module in modules if module.startswith("experiments.")}


def test_every_package_has_a_rule() -> None:
    assert {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")} == {
        "__init__",
        *MAY_IMPORT,
    }


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_lower_packages_alone(package: str) -> None:
    files = [*(ROOT / package).rglob("*.py")] or [ROOT / f"{package}.py"]
    for path in files:
        assert packages_imported_by(path) - {package} <= MAY_IMPORT[package], path.relative_to(ROOT)
