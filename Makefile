# Two commands a fresh machine needs: make demo, make test.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LIGHT := .venv-light
FLOWER := .venv-flower

.PHONY: demo test quick sweeps check light flower bench bench-crowd bench-serve bench-peers peers lowest clean

demo: $(READY)
	$(BIN)/nextapp demo --out demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not sweep"

# The inner loop: equations, mechanisms, wire, phone; no compiling, no processes of their own.
quick: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not sweep and not slow" tests/paper tests/model tests/wire tests/randomness \
	  tests/privacy tests/learners tests/crowd tests/phone

# Slow statistical tests.
sweeps: $(READY)
	$(BIN)/python -m pytest -n 2 -m sweep

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The base install, with NumPy and pytest only: what a phone carries must work without the rest.
light:
	$(PYTHON) -m venv --clear $(LIGHT)
	$(LIGHT)/bin/python -m pip install --quiet --constraint constraints.txt . pytest
	$(LIGHT)/bin/python -m pytest --noconftest -p no:cacheprovider tests/light
	$(LIGHT)/bin/python -m pytest tests/paper tests/model tests/wire tests/randomness/test_randomness.py \
	  tests/privacy tests/learners tests/crowd tests/predictor tests/phone

# Many regions: Flower, whose pins need an environment of their own, and its tests with real processes.
flower: $(FLOWER)/.ready
	$(FLOWER)/bin/python -m pytest -n 3 --dist loadfile -rs tests/flower

$(FLOWER)/.ready: pyproject.toml constraints-flower.txt
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip install --quiet --constraint constraints-flower.txt -e '.[flower]' \
	  pytest pytest-xdist
	@touch $@

# The oldest versions that pyproject.toml allows.
lowest:
	$(PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --constraint constraints-lowest.txt -e '.[dev]'
	.venv-lowest/bin/python -m pytest -n 2

bench: $(READY)
	$(BIN)/python benchmarks/evaluate_speed.py
	$(BIN)/python benchmarks/load_lsapp.py
	$(BIN)/python benchmarks/predictor_speed.py
	$(BIN)/python benchmarks/fit_synthetic.py --check
	$(BIN)/python benchmarks/fleet_speed.py rounds
	$(BIN)/python benchmarks/phone_speed.py --check
	$(BIN)/python benchmarks/startup.py --check

# What a crowd is worth to new phones, by the way it is learnt; long.
bench-crowd: $(READY)
	$(BIN)/python benchmarks/crowd_compare.py --phones 1000,10000,100000 --cache .bench-crowd

# Load, kills and nonsense against a server on loopback; ten minutes.
bench-serve: $(READY)
	$(BIN)/python benchmarks/gateway_load.py
	$(BIN)/python benchmarks/kill_test.py
	$(BIN)/python benchmarks/fuzz_gateway.py

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
	rm -rf $(VENV) $(LIGHT) $(FLOWER) .venv-lowest demo
