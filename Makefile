# Each target does its own set-up, most in .venv, a virtual environment with the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
export PYTHONDONTWRITEBYTECODE := 1

# One test file at a time on each core, with one thread: twice as fast as one process with as many threads as cores.
PYTEST := OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n auto --dist loadfile

.PHONY: bench bench-large bench-peers demo docs test test-slow test-all wheel oldest lint format clean

demo: $(READY)
	$(VENV)/bin/lates demo

docs: $(READY)
	$(VENV)/bin/zensical build --clean --strict

bench: bench-peers
	$(VENV)/bin/python -m benchmarks

# An environment for each package to compare with, below .bench/: some minutes, once.
bench-peers: $(READY)
	$(VENV)/bin/python -m benchmarks.environments

bench-large: $(READY)
	$(VENV)/bin/python -m benchmarks.large

test: $(READY)
	$(PYTEST)

test-slow: $(READY)
	$(PYTEST) -m slow

# Both suites at once: by turns, one core would wait for the last file of each.
test-all: $(READY)
	$(PYTEST) -m "slow or not slow"

# Builds source and wheel, and runs the demo from the wheel in an empty environment, away from the clone.
wheel: $(READY)
	rm -rf dist build/empty
	$(VENV)/bin/python -m build --outdir dist .
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd build/empty && bin/lates demo --quick

# The demo and some tests with the oldest versions that pyproject.toml allows of what the library and its export need. By hand,
# when a range changes, with Python 3.11 or 3.12, for which these versions have wheels: that torch brings CUDA, some gigabytes.
oldest:
	rm -rf build/oldest
	$(PYTHON) -m venv build/oldest
	build/oldest/bin/python -m pip install --quiet --disable-pip-version-check . pytest hypothesis $$($(PYTHON) -c \
	    "import tomllib; all = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	    print(*all['dependencies'], *all['optional-dependencies']['export'])" | sed 's/>=/==/g')
	cd build/oldest && bin/lates demo --quick
	OMP_NUM_THREADS=1 build/oldest/bin/python -m pytest -m "slow or not slow" tests/test_calibrate.py tests/test_export.py \
	    tests/model/test_model.py tests/test_onnx.py tests/runtime/test_spilling.py tests/model/test_saving.py tests/network/test_recorder.py
	OMP_NUM_THREADS=1 build/oldest/bin/python -m pytest tests/cli/test_command.py -k help

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
