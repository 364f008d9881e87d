"""Settings: the environment (`RUNTURN_*`) over secrets by file over one TOML file over the defaults.

The file is the one that `RUNTURN_CONFIG` names, else `runturn.toml` in the current directory, else
`runturn/runturn.toml` in the user's configuration directory. A setting in a table is named with two underscores
in the environment: `RUNTURN_AGENT__TURN_TIMEOUT_MS`. The file's other tables are the options of the agents of
these names; in the environment they are one JSON object, `RUNTURN_AGENTS`. Secrets by file: see `secret_files`.

To add a setting: add a field with its meaning to its table's class (`settings.py`, `agents.py`, `ssh.py`), and run
`make docs`.
"""

from ops.settings.agents import AgentSettings, AgentTable
from ops.settings.loading import RESERVED, load_settings
from ops.settings.settings import PREFIX, Settings
from ops.settings.ssh import SshHostSettings

__all__ = [
    "PREFIX",
    "RESERVED",
    "AgentSettings",
    "AgentTable",
    "Settings",
    "SshHostSettings",
    "load_settings",
]
