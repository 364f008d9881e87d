# The images of compose.yaml. Targets:
#   runturn  workers that run turns on hosts, the exporter, Flower: Python, no agents
#   worker   runturn plus Claude Code and git, for turns in the worker's own container; they end when it stops
#   host     an SSH host for agents: sshd, Claude Code, git
#
# Every Python package is locked by hash. Claude Code is the program bundled in the wheel of claude-agent-sdk, so
# the image has the version that the tests run. The wheels need no compiler.

ARG PYTHON=python:3.11.13-slim-bookworm

FROM ${PYTHON} AS built
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements.lock requirements-dev.lock ./
RUN python -m venv --without-pip /opt/runturn \
    && pip --python /opt/runturn install --require-hashes --only-binary :all: -r requirements.lock \
    && rm -rf /opt/runturn/lib/python3.*/site-packages/claude_agent_sdk/_bundled  # agents are not for every image
RUN awk '/^[a-z]/ { wanted = /^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/ } wanted' \
        requirements-dev.lock > build.lock \
    && pip install --require-hashes --only-binary :all: -r build.lock
COPY pyproject.toml README.md LICENSE ./
COPY adapters adapters
COPY ops ops
COPY remote remote
COPY workers workers
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && pip --python /opt/runturn install --no-deps dist/runturn-*.whl

FROM ${PYTHON} AS claude
WORKDIR /src
COPY requirements-dev.lock ./
RUN awk '/^[a-z]/ { wanted = /^claude-agent-sdk==/ } wanted' requirements-dev.lock > claude.lock \
    && pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: --target sdk -r claude.lock \
    && install -m 755 sdk/claude_agent_sdk/_bundled/claude /usr/local/bin/claude

FROM ${PYTHON} AS runturn
RUN groupadd --gid 10001 runturn \
    && useradd --uid 10001 --gid 10001 --no-log-init --no-create-home --home-dir /var/lib/runturn runturn \
    && install -d -m 700 -o 10001 -g 10001 /var/lib/runturn /var/lib/transcripts
COPY --from=built /opt/runturn /opt/runturn
ENV PATH=/opt/runturn/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    RUNTURN_STATE_DIR=/var/lib/runturn
WORKDIR /var/lib/runturn
USER 10001:10001
ENTRYPOINT ["runturn"]
CMD ["--help"]

FROM runturn AS worker
USER 0:0
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git \
    && rm -rf /var/lib/apt/lists/*
COPY --from=claude /usr/local/bin/claude /usr/local/bin/claude
USER 10001:10001
CMD ["worker"]

FROM ${PYTHON} AS host
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git openssh-server \
    && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
    && groupadd --gid 10002 agents \
    && useradd --uid 10002 --gid 10002 --no-log-init --create-home --shell /bin/bash agents \
    && install -d -o 10002 -g 10002 /srv/workspaces
COPY --from=claude /usr/local/bin/claude /usr/local/bin/claude
COPY ops/compose/sshd_config /etc/ssh/runturn_sshd_config
COPY --chmod=755 ops/compose/ssh-host /usr/local/bin/ssh-host
WORKDIR /srv/workspaces
USER 10002:10002
EXPOSE 2222
ENTRYPOINT ["ssh-host"]
