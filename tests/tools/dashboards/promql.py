"""The few shapes that the boards' queries have.

Workers count what they see: their counters begin anew with each process, so they are read by `rate` and
`increase`. The exporter's counters are the ledger's totals, which never fall: what was booked within a range is a
difference, exact to the token. Should two exporters serve one ledger, `max without (instance)` counts it once.
"""

from __future__ import annotations

from ops.metrics import exported

AGENT = 'agent=~"$agent"'
MODEL = 'model=~"$model"'
HOST = 'host=~"$host"'

# What an exporter shows. `runturn_dead_letters` is there whenever it could read the ledger.
_EXPORTED = exported()

# Cancelled turns were nobody's failure.
FAILED = 'outcome!~"completed|turn_cancelled"'
COMPLETED = 'outcome="completed"'
COUNTED = 'outcome!="turn_cancelled"'


def select(metric: str, *matchers: str) -> str:
    """The series of a metric."""
    return f"{metric}{{{','.join(matchers)}}}" if matchers else metric


def rate(metric: str, *matchers: str, by: str = "", per_s: int = 1) -> str:
    """How fast a counter of the workers grows, in so many seconds."""
    per = f" * {per_s}" if per_s != 1 else ""
    return f"sum{_by(by)} (rate({select(metric, *matchers)}[$__rate_interval])){per}"


def increase(metric: str, *matchers: str, by: str = "") -> str:
    """By how much a counter of the workers grew in the range shown."""
    return f"sum{_by(by)} (increase({select(metric, *matchers)}[$__range]))"


def quantile(share: float, histogram: str, *matchers: str, by: str = "", over: str = "$__rate_interval") -> str:
    """What this share of a histogram's observations did not exceed."""
    labels = f"le, {by}" if by else "le"
    buckets = select(f"{histogram}_bucket", *matchers)
    return f"histogram_quantile({share}, sum by ({labels}) (rate({buckets}[{over}])))"


def buckets(histogram: str, *matchers: str) -> str:
    """How many observations fell into each bucket."""
    return f"sum by (le) (increase({select(f'{histogram}_bucket', *matchers)}[$__rate_interval]))"


def mean(histogram: str, *matchers: str, by: str = "") -> str:
    """The mean of a histogram's observations in the range shown."""
    total, count = (increase(f"{histogram}_{part}", *matchers, by=by) for part in ("sum", "count"))
    return ratio(total, count)


def ledger(metric: str, *matchers: str, by: str = "") -> str:
    """What the ledger says now."""
    return f"sum{_by(by)} ({_once(select(metric, *matchers))})"


def ledger_rate(metric: str, *matchers: str, by: str = "", per_s: int = 1) -> str:
    """How fast a total of the ledger grows, in so many seconds."""
    per = f" * {per_s}" if per_s != 1 else ""
    return f"sum{_by(by)} ({_once(f'rate({select(metric, *matchers)}[$__rate_interval])')}){per}"


def booked(metric: str, *matchers: str, by: str = "") -> str:
    """What the ledger booked in the range shown, exactly.

    A model that is new in the range had nothing before, and counts in full; `increase` would miss its first turn.
    So does everything if Prometheus is younger than the range. A day's look back bridges outages of Prometheus.
    """
    now = ledger(metric, *matchers, by=by)
    before = f"sum{_by(by)} ({_once(f'last_over_time({select(metric, *matchers)}[1d] offset $__range)')})"
    return f"{now} - ({before} or {now} * 0)"


def fullest(metric: str, *matchers: str, by: str) -> str:
    """A gauge that every worker reports of the same thing."""
    return f"max by ({by}) ({select(metric, *matchers)})"


def worst(metric: str, *matchers: str, by: str) -> str:
    """The same, where a worker that sees a 0 is to be heard."""
    return f"min by ({by}) ({select(metric, *matchers)})"


def ratio(part: str, whole: str) -> str:
    """A share; nothing while there is no whole."""
    return f"({part}) / (({whole}) > 0)"


def or_zero(query: str) -> str:
    """0 where there is no series, or not yet; but nothing while nobody could tell: that must not pass for a 0."""
    if any(name in query for name in _EXPORTED):
        return f"({query}) or 0 * max(runturn_dead_letters)"
    if "runturn_" in query:
        return f"({query}) or 0 * max(runturn_turns_in_flight)"
    return f"({query}) or vector(0)"


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""


def _once(series: str) -> str:
    return f"max without (instance) ({series})"
