# Two commands a fresh machine needs: make demo, make test.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LIGHT := .venv-light
FLOWER := .venv-flower

# Tests start hundreds of processes, each of which would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# Four processes for two cores: tests of servers and commands mostly wait for other processes.
TESTED := $(BIN)/python -m pytest -n 4 --dist worksteal
# Threads of libraries would wait for each other.
test quick sweeps test-all: export OPENBLAS_NUM_THREADS = 1
test quick sweeps test-all: export OMP_NUM_THREADS = 1

.PHONY: page screenshots demo test quick gpu-test bench-gpu sweeps test-all check light package flower docs bench bench-serve bench-gateways bench-peers peers lowest clean

demo: $(READY)
	$(BIN)/nextapp demo --out demo

# All but the page, whose tests need a browser: make page.
test: $(READY)
	$(TESTED) -m "not sweep" --ignore tests/page

# The inner loop: equations, mechanisms, wire, phone; no compiling, no processes of their own.
quick: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not sweep and not slow" tests/paper tests/test_wire.py tests/test_randomness.py tests/test_draws.py \
	  tests/privacy tests/learners tests/phone

# The fleet's kernels on this machine's card, and how fast they are; needs the extra gpu.
# make test runs the same tests with the kernels compiled for the processor.
gpu-test: $(READY)
	NEXTAPP_TEST_DEVICE=gpu $(BIN)/python -m pytest tests/fleet/test_gpu_fleet.py

bench-gpu: $(READY)
	$(BIN)/python benchmarks/gpu_speed.py

# Slow statistical tests.
sweeps: $(READY)
	$(TESTED) -m sweep

# Both in one go.
test-all: $(READY)
	$(TESTED) --ignore tests/page

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The base install, with NumPy and pytest only: what a phone carries must work without the rest.
light:
	$(PYTHON) -m venv --clear $(LIGHT)
	$(LIGHT)/bin/python -m pip install --quiet --constraint constraints.txt . pytest
	$(LIGHT)/bin/python -m pytest --noconftest -p no:cacheprovider tests/test_light_install.py
	$(LIGHT)/bin/python -m pytest -m "not sweep" tests/paper tests/test_wire.py \
	  tests/test_randomness.py tests/privacy tests/learners tests/predictor tests/phone

# Source archive, and from it the wheel; checked as a package index does, installed where nothing else is,
# and tried from another folder.
package:
	rm -rf dist .venv-package
	$(PYTHON) -m venv .venv-package
	.venv-package/bin/python -m pip install --quiet --constraint constraints.txt build twine 'readme_renderer[md]'
	.venv-package/bin/python -m build --outdir dist
	.venv-package/bin/twine check --strict dist/*
	$(PYTHON) -m venv --clear .venv-package
	.venv-package/bin/python -m pip install --quiet --constraint constraints.txt "$$(ls dist/*.whl)[lab]"
	cd .venv-package && unset PYTHONPATH && bin/nextapp --version && \
	  bin/nextapp data make synthetic:phones=8,apps=12,days=6 --out log.csv && \
	  bin/nextapp evaluate log.csv --models mru,sr --json result.json && test -s result.json

# The page in a real browser: Chromium from the system's packages, driven by Playwright.
page: $(VENV)/.browser
	$(BIN)/python -m pytest -rs tests/page

# The pictures of the page in README and docs, from the running page.
screenshots: $(VENV)/.browser
	$(BIN)/python docs/make_screenshots.py

$(VENV)/.browser: $(READY)
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; } || \
	  echo "no browser here: apt-get install -y chromium"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt -e '.[browser]'
	@touch $@

# Many regions: Flower, whose pins need an environment of their own, and its tests with real processes.
flower: $(FLOWER)/.ready
	$(FLOWER)/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -rs \
	  tests/server/flower

$(FLOWER)/.ready: pyproject.toml constraints-flower.txt
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip install --quiet --constraint constraints-flower.txt -e '.[flower]' \
	  pytest pytest-xdist
	@touch $@

# The docs site, in site/: built from the repository, offline, every link checked.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt -e '.[docs]'
	@touch $@

# The oldest versions that pyproject.toml allows.
lowest:
	$(PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --constraint constraints-lowest.txt -e '.[dev]'
	.venv-lowest/bin/python -m pytest -n 2

bench: $(READY)
	$(BIN)/python benchmarks/evaluate_speed.py
	$(BIN)/python benchmarks/load_lsapp.py
	$(BIN)/python benchmarks/fit_synthetic.py --check
	$(BIN)/python benchmarks/fleet_speed.py rounds
	$(BIN)/python benchmarks/phone_speed.py --check
	$(BIN)/python benchmarks/startup.py --check

# Load, kills, nonsense, floods and a fivefold peak against a server on loopback; a quarter of an hour.
bench-serve: $(READY)
	$(BIN)/python benchmarks/server_load.py gateway
	$(BIN)/python benchmarks/server_marks.py visits
	$(BIN)/python benchmarks/server_marks.py million
	$(BIN)/python benchmarks/kill_test.py
	$(BIN)/python benchmarks/fuzz_gateway.py
	$(BIN)/python benchmarks/flood_gateway.py
	$(BIN)/python benchmarks/lost_epsilon.py

# One server beside 1, 2 and 4 gateways joined by Flower, directly and behind nginx, and a kill; fifteen minutes.
bench-gateways: $(FLOWER)/.ready
	$(FLOWER)/bin/python benchmarks/server_load.py gateways

# Against implicit, pfl and Flower, each in an environment of its own: make peers bench-peers
bench-peers: $(READY)
	$(BIN)/python benchmarks/fleet_speed.py step
	$(BIN)/python benchmarks/fleet_speed.py peers

# What benchmarks/fleet_speed.py measures against, each in an environment of its own.
peers:
	$(PYTHON) -m venv .venv-peer-implicit && \
	  .venv-peer-implicit/bin/python -m pip install --quiet implicit numpy scipy
	$(PYTHON) -m venv .venv-peer-pfl && \
	  .venv-peer-pfl/bin/python -m pip install --quiet pfl==0.6.0 numpy
	$(PYTHON) -m venv .venv-peer-flower && \
	  .venv-peer-flower/bin/python -m pip install --quiet "flwr[simulation]==1.41.0" numpy

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "nextapp needs Python 3.11 or newer; give one by: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt -e '.[dev]'
	@touch $(READY)

clean:
	rm -rf $(VENV) $(LIGHT) $(FLOWER) .venv-lowest .venv-package dist demo
