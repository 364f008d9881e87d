"""Settings, by precedence: the environment (`RUNTURN_*`), secret files, one TOML file, defaults.

The file is the one named by `RUNTURN_CONFIG`, else `runturn.toml` in the current directory, else
`runturn/runturn.toml` in the user's configuration directory. In the environment, two underscores separate a table
from its setting: `RUNTURN_AGENT__TURN_TIMEOUT_MS`. The file's other tables hold options, each of the agent it is
named after; in the environment they are one JSON object, `RUNTURN_AGENTS`. Secret files: see `secret_files`.

To add a setting: add a described field to its table's class (`settings.py`, `agents.py`, `ssh.py`) and run
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
