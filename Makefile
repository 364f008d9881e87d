# Everything a fresh machine needs comes from here; only Python 3.11 or newer and make have to be there before.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Containers set it; the tests' processes would compile all of the tests, and of the code, each for itself.
unexport PYTHONDONTWRITEBYTECODE
# Python and pytest read these before anything of ours could set them aside.
unexport PYTHONPATH PYTHONHOME PYTHONOPTIMIZE PYTHONWARNINGS PYTEST_ADDOPTS PYTEST_PLUGINS

.PHONY: install demo test test-newest test-fresh test-tools test-agents lint docs bench simulate chaos outages \
	dashboards pictures stack secrets lock clean

install: $(INSTALLED)

$(INSTALLED): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "runturn needs Python 3.11 or newer; set PYTHON=/path/to/one"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ test "$$(id -u)" = 0 && apt-get update -q && apt-get install -qy python3-venv && $(PYTHON) -m venv $(VENV); } || \
		{ test -x $(BIN)/pip || rm -rf $(VENV); exit 1; }
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# Three turns of the real Claude Code through the queue. LIVE=1: with your own login instead of the scripted model.
demo: $(INSTALLED)
	@$(BIN)/python -m tests.demo $(if $(LIVE),--live)

test: $(INSTALLED) test-tools
	$(BIN)/python -m pytest -n 6 --dist loadfile --no-loadscope-reorder

# The same with the newest Celery and kombu that pyproject.toml allows, in an environment beside the other one.
test-newest:
	@$(MAKE) --no-print-directory VENV=.venv-newest install
	.venv-newest/bin/pip install --quiet --upgrade --no-build-isolation -e . celery kombu amqp billiard vine
	@$(MAKE) --no-print-directory VENV=.venv-newest test

# README's commands on bare Debian 12 and 13, as newcomers of every kind, for hours. Only root can do it, with mmdebstrap.
# RELEASE=bookworm or trixie, KIND=root, plain, equipped or blank: only these.
test-fresh: $(INSTALLED)
	@$(BIN)/python -m tests.fresh $(if $(RELEASE),--release $(RELEASE)) $(if $(KIND),--kind $(KIND))

# Shells, OpenSSH, agents from npm, celery-exporter and the like. On a machine that has them it does nothing.
test-tools: $(INSTALLED)
	@.ci/test-tools
	@.ci/npm-tools $(BIN)/python
	@.ci/celery-exporter $(BIN)/python

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What documents have from the code: settings, options, fields, error kinds, schemas.
docs: $(INSTALLED)
	$(BIN)/python -m tests.docs

bench: $(INSTALLED)
	$(BIN)/python -m tests.bench

# How long turns wait in fleets of all sizes, see docs/capacity.md. CHECK=1: compare with a small real fleet, too.
simulate: $(INSTALLED)
	$(BIN)/python -m tests.tools.capacity
	$(if $(CHECK),$(BIN)/python -m tests.bench capacity_check)

# Hundreds of turns while everything around them is killed and cut off, on each broker: a quarter of an hour.
# BROKER=valkey or rabbitmq: on that one only. SEED=N: that storm once more.
chaos: $(INSTALLED) test-tools
	@$(BIN)/python -m tests.chaos $(if $(BROKER),--broker $(BROKER)) $(if $(SEED),--seed $(SEED))

# Agents from npm in all versions that docs/adapters.md names, through a real worker: a quarter of an hour, and 3 GB.
# AGENT=codex VERSION=0.140.0 SCENE=cut: that one only.
test-agents: $(INSTALLED)
	@$(BIN)/python -m tests.agents $(if $(AGENT),--agent $(AGENT)) $(if $(VERSION),--version $(VERSION)) \
		$(if $(SCENE),--scene $(SCENE))

# The broker, the ledger, and both are away for half a minute each.
outages: $(INSTALLED) test-tools
	OUTAGE_S=30 $(BIN)/python -m pytest tests/workers/test_outages.py

# The processes of compose.yaml without containers, until Ctrl-C. TURNS=N: how many turns to begin with.
stack: $(INSTALLED)
	@.ci/test-tools ssh sshd prometheus
	@$(BIN)/python -m tests.stack $(if $(TURNS),--turns $(TURNS))

# What compose.yaml hands to its services by file.
secrets:
	@ops/compose/make-secrets

# Grafana's boards, ops/grafana/dashboards/*.json.
dashboards: $(INSTALLED)
	$(BIN)/python -m tests.tools.dashboards

# A picture of each board for docs/dashboards.md, from two minutes of a small fleet's life on a real Prometheus.
pictures: $(INSTALLED) test-tools
	$(BIN)/python -m tests.boards

# The locks carry names, versions and hashes, and no address.
lock:
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links pyproject.toml --all-extras -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links pyproject.toml --all-extras --group dev -o requirements-dev.lock
	$(BIN)/uv pip compile --quiet --python-version 3.12 --generate-hashes --no-header --no-annotate --no-emit-index-url \
		--no-emit-find-links tests/instruments/celery-exporter.in -o tests/instruments/celery-exporter.lock

clean:
	rm -rf .venv .venv-newest
