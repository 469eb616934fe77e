# Each target does its own set-up, in .venv: first what the demo needs, then, for the other targets, the rest. pip accepts only
# the wheels whose digests requirements/ lists.
PYTHON ?= python3
VENV := .venv
DEMO := $(VENV)/.demo
DEV := $(VENV)/.dev
BROWSER := $(VENV)/.browser
export PYTHONDONTWRITEBYTECODE := 1

# One test file at a time on each core, with one thread: twice as fast as one process with as many threads as cores.
PYTEST := OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n auto --dist loadfile

PIP := bin/python -m pip --quiet --quiet --disable-pip-version-check
LOCKED := $(PIP) install --no-deps --require-hashes --only-binary :all:

# Makes the environment $(1) with what the demo needs: torch for CPUs alone where pip finds it, else as the package index has it.
define make-environment
	$(PYTHON) -m venv $(1)
	$(1)/$(LOCKED) --timeout 15 --retries 0 -r requirements/torch-cpu.txt 2>/dev/null || $(1)/$(LOCKED) -r requirements/torch.txt
	$(1)/$(LOCKED) -r requirements/demo.txt
endef

.PHONY: bench bench-large bench-peers demo docs test test-slow test-all wheel oldest lint format lock clean

demo: $(DEMO)
	$(VENV)/bin/lates demo

docs: $(DEV)
	$(VENV)/bin/zensical build --clean --strict

bench: bench-peers
	$(VENV)/bin/python -m benchmarks

# An environment for each package to compare with, below .bench/: some minutes, once.
bench-peers: $(DEV)
	$(VENV)/bin/python -m benchmarks.environments

bench-large: $(DEV)
	$(VENV)/bin/python -m benchmarks 7

test: $(BROWSER)
	$(PYTEST)

test-slow: $(BROWSER)
	$(PYTEST) -m slow

# Both suites at once: by turns, one core would wait for the last file of each.
test-all: $(BROWSER)
	$(PYTEST) -m "slow or not slow"

# Builds source and wheel, and runs the demo from the wheel in an empty environment, away from the clone.
wheel: $(DEV)
	rm -rf dist build/empty
	$(VENV)/bin/python -m build --no-isolation --outdir dist .
	$(call make-environment,build/empty)
	build/empty/$(PIP) install --no-deps dist/*.whl
	build/empty/bin/python -m pip check
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

lint: $(DEV)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright

format: $(DEV)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# Lists the digests of the versions in requirements/ anew.
lock: $(DEV)
	$(VENV)/bin/python requirements/lock.py

clean:
	rm -rf $(VENV) build dist site .cache .pytest_cache .ruff_cache .hypothesis

$(DEMO): pyproject.toml $(wildcard requirements/torch*.txt) requirements/demo.txt
	$(call make-environment,$(VENV))
	$(VENV)/$(PIP) install --no-deps --no-build-isolation --editable .
	$(VENV)/bin/python -m pip check
	touch $@

$(DEV): $(DEMO) requirements/dev.txt
	$(VENV)/$(LOCKED) -r requirements/dev.txt
	$(VENV)/bin/python -m pip check
	touch $@

# Tried once, not at every run: where no browser can be had, the tests that need one are skipped.
$(BROWSER): $(DEV)
	$(VENV)/bin/python -m tests.chromium
	touch $@
