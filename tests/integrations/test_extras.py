"""Without its tool, an integration says what to install."""

import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("name", "tool"),
    [("torchmetrics", "torchmetrics"), ("lightning", "lightning.pytorch"), ("transformers", "transformers")],
)
def test_an_integration_without_its_tool_names_the_extra(name: str, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"lates.integrations.{name}", raising=False)
    monkeypatch.setitem(sys.modules, tool, None)
    with pytest.raises(ImportError, match=rf'Run: pip install "(\.|lates)\[{name}\]"'):
        import_module(f"lates.integrations.{name}")
