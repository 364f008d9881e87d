# Installs everything a fresh machine needs; the only prerequisites are Python 3.11 or newer and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WHICH := import sys; print(sys.version, sys.base_prefix)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Containers set this; each test process would then compile all tests and all code again.
unexport PYTHONDONTWRITEBYTECODE
# Python and pytest read these before our code can discard them.
unexport PYTHONPATH PYTHONHOME PYTHONOPTIMIZE PYTHONWARNINGS PYTEST_ADDOPTS PYTEST_PLUGINS

.PHONY: help install demo test test-unit test-newest test-fresh test-tools test-agents test-levels test-vm lint docs bench simulate chaos outages \
	dashboards pictures stack secrets lock clean

# List the targets.
help:
	@awk '/^# / { if (!text) text = substr($$0, 3); next } \
		/^[a-z-]+:/ { sub(/:.*/, ""); if (text) printf "%-13s %s\n", $$0, text } { text = "" }' Makefile

# Create .venv with everything that the other targets need.
install: $(INSTALLED)

$(INSTALLED): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "runturn needs Python 3.11 or newer; set PYTHON=/path/to/one"; exit 1; }
	@# An environment that another Python made would be half of each.
	@test "$$($(BIN)/python -c '$(WHICH)' 2>&1)" = "$$($(PYTHON) -c '$(WHICH)')" || rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || \
		{ test "$$(id -u)" = 0 && apt-get update -q && apt-get install -qy python3-venv && $(PYTHON) -m venv $(VENV); } || \
		{ test -x $(BIN)/pip || rm -rf $(VENV); exit 1; }
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# Run three turns of the real Claude Code through the queue. LIVE=1: use your login instead of the scripted model.
demo: $(INSTALLED)
	@$(BIN)/python -m tests.tools.demo $(if $(LIVE),--live)

# Run all tests. In CI (CI=true) a missing program is a failure; elsewhere its tests are skipped.
test: $(INSTALLED) test-tools
	$(BIN)/python -m pytest -n 6 --dist loadfile --no-loadscope-reorder

# Run the tests that start no process and open no port: under a minute on two cores.
test-unit: $(INSTALLED)
	$(BIN)/python -m pytest -n 3 --dist loadfile -m "not postgresql" tests/unit

# Run the tests with the newest Celery and kombu that pyproject.toml allows, in a separate environment.
test-newest:
	@$(MAKE) --no-print-directory VENV=.venv-newest install
	.venv-newest/bin/pip install --quiet --upgrade --no-build-isolation -e . celery kombu amqp billiard vine
	@$(MAKE) --no-print-directory VENV=.venv-newest test

# Run README's commands on bare Debian 12 and 13, as each kind of new user. Takes over an hour; needs root and mmdebstrap.
# RELEASE=bookworm or trixie, KIND=root, plain, equipped or blank: run only these.
test-fresh: $(INSTALLED)
	@$(BIN)/python -m tests.tools.fresh $(if $(RELEASE),--release $(RELEASE)) $(if $(KIND),--kind $(KIND))

# Install shells, OpenSSH, agents from npm, celery-exporter and the like, unless the machine has them.
test-tools: $(INSTALLED)
	@.ci/test-tools
	@.ci/npm-tools $(BIN)/python
	@.ci/celery-exporter $(BIN)/python

# Run every agent through the same scenes at every level of isolation, on this machine and over SSH.
test-levels: $(INSTALLED) test-tools
	LEVELS=all $(BIN)/python -m pytest tests/integration/contract

# Run turns on a virtual machine with systemd, whose kernel keeps their limits and whose power is cut: ten minutes.
# Needs root, mmdebstrap, e2fsprogs and qemu-system-x86.
test-vm: $(INSTALLED)
	@$(BIN)/python -m tests.tools.vm

# Check style, types and import contracts.
lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Regenerate the parts of the documents taken from the code: settings, options, fields, error kinds, schemas.
docs: $(INSTALLED)
	$(BIN)/python -m tests.docs

# Run the benchmarks. The last line printed is one JSON object of all results.
bench: $(INSTALLED) test-tools
	$(BIN)/python -m tests.tools.bench

# Simulate waits in fleets of all sizes, see docs/capacity.md. CHECK=1: also compare with a small real fleet.
simulate: $(INSTALLED)
	$(BIN)/python -m tests.tools.capacity
	$(if $(CHECK),$(BIN)/python -m tests.tools.bench capacity_check)

# Run hundreds of turns on each broker while everything around them is killed and cut off: a quarter of an hour.
# BROKER=valkey or rabbitmq: only this broker. SEED=N: repeat that sequence of faults.
chaos: $(INSTALLED) test-tools
	@$(BIN)/python -m tests.tools.chaos $(if $(BROKER),--broker $(BROKER)) $(if $(SEED),--seed $(SEED))

# Run npm agents through a real worker, in all versions listed in docs/adapters.md: a quarter of an hour, and 3 GB.
# AGENT=codex VERSION=0.140.0 SCENE=cut: run only this one.
test-agents: $(INSTALLED)
	@$(BIN)/python -m tests.tools.agents $(if $(AGENT),--agent $(AGENT)) $(if $(VERSION),--version $(VERSION)) \
		$(if $(SCENE),--scene $(SCENE))

# Take down the broker, the ledger, and both, for half a minute each; kill RabbitMQ twenty times.
outages: $(INSTALLED) test-tools
	OUTAGE_S=30 KILLS=20 $(BIN)/python -m pytest tests/system/test_outages.py \
		tests/integration/brokers/test_rabbitmq_kills.py

# Run the processes of compose.yaml without containers, until Ctrl-C. TURNS=N: number of turns to queue at start.
stack: $(INSTALLED)
	@.ci/test-tools ssh sshd prometheus
	@$(BIN)/python -m tests.tools.stack $(if $(TURNS),--turns $(TURNS))

# Create the secret files that compose.yaml mounts into its services.
secrets:
	@ops/compose/make-secrets

# Generate the Grafana boards, ops/grafana/dashboards/*.json.
dashboards: $(INSTALLED)
	$(BIN)/python -m tests.tools.dashboards

# Draw each board for docs/dashboards.md, from three minutes of a small fleet on a real Prometheus.
pictures: $(INSTALLED) test-tools
	$(BIN)/python -m tests.tools.boards

# Update the lock files. They contain names, versions and hashes, but no URLs.
lock:
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links pyproject.toml --all-extras -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links pyproject.toml --all-extras --group dev -o requirements-dev.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links tests/integration/instruments/celery-exporter.in \
		-o tests/integration/instruments/celery-exporter.lock

# Remove the virtual environments.
clean:
	rm -rf .venv .venv-newest
