"""The application of an installation has its settings, and nothing else."""

from __future__ import annotations

import pytest

from ops.errors import SettingsError
from ops.settings import Settings
from workers.brokers.settings import queue_names
from workers.configured_app import configured_app

URL = "redis://ours/0"


@pytest.mark.parametrize("suffix", ["BROKER_URL", "BROKER_READ_URL", "BROKER_WRITE_URL", "RESULT_BACKEND"])
def test_variable_of_celerys_that_would_beat_a_setting_is_refused(
    suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"CELERY_{suffix}", URL)
    configured_app(Settings(), URL)
    monkeypatch.setenv(f"CELERY_{suffix}", "redis://:hunter22@theirs/0")
    with pytest.raises(SettingsError, match=f"^CELERY_{suffix}: .*_url: Celery would use it") as caught:
        configured_app(Settings(), URL)
    assert "hunter22" not in str(caught.value)


def test_queues_and_modules_are_those_of_the_settings() -> None:
    app = configured_app(Settings(queues=("turns", "more"), include=("company.tasks",)), URL)
    assert (queue_names(app), app.conf.include) == (["turns", "more"], ("company.tasks",))
    assert app.conf.task_routes == {"runturn.*": {"queue": "turns"}}
