# Each target does its own set-up: a virtual environment in .venv with the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: demo docs test test-slow lint format clean

demo: $(READY)
	$(VENV)/bin/lates demo

docs: $(READY)
	$(VENV)/bin/zensical build --clean --strict

test: $(READY)
	$(VENV)/bin/python -m pytest

test-slow: $(READY)
	$(VENV)/bin/python -m pytest -m slow

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright

format: $(READY)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) build dist site .cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
