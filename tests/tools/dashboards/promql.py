"""Building blocks of the boards' queries.

Workers' counters restart with each process, so they are read with `rate` and `increase`. The exporter's counters
are the ledger's totals, which never fall: the amount booked within a range is a difference, exact to the token. If
two exporters serve one ledger, `max without (instance)` counts it once.
"""

from __future__ import annotations

from ops.metrics import exported

AGENT = 'agent=~"$agent"'
MODEL = 'model=~"$model"'
HOST = 'host=~"$host"'

# The exporter's metrics. `runturn_dead_letters` is present whenever it could read the ledger.
_EXPORTED = exported()

# Cancelled turns are not failures.
FAILED = 'outcome!~"completed|turn_cancelled"'
COMPLETED = 'outcome="completed"'
COUNTED = 'outcome!="turn_cancelled"'


def select(metric: str, *matchers: str) -> str:
    """Return a selector for a metric's series."""
    return f"{metric}{{{','.join(matchers)}}}" if matchers else metric


def rate(metric: str, *matchers: str, by: str = "", per_s: int = 1) -> str:
    """Return the growth of a worker counter per `per_s` seconds."""
    per = f" * {per_s}" if per_s != 1 else ""
    return f"sum{_by(by)} (rate({select(metric, *matchers)}[$__rate_interval])){per}"


def increase(metric: str, *matchers: str, by: str = "") -> str:
    """Return the increase of a worker counter in the selected range."""
    return f"sum{_by(by)} (increase({select(metric, *matchers)}[$__range]))"


def quantile(share: float, histogram: str, *matchers: str, by: str = "", over: str = "$__rate_interval") -> str:
    """Return a quantile of a histogram."""
    labels = f"le, {by}" if by else "le"
    buckets = select(f"{histogram}_bucket", *matchers)
    return f"histogram_quantile({share}, sum by ({labels}) (rate({buckets}[{over}])))"


def buckets(histogram: str, *matchers: str) -> str:
    """Return the number of observations in each bucket."""
    return f"sum by (le) (increase({select(f'{histogram}_bucket', *matchers)}[$__rate_interval]))"


def mean(histogram: str, *matchers: str, by: str = "") -> str:
    """Return the mean of a histogram's observations in the selected range."""
    total, count = (increase(f"{histogram}_{part}", *matchers, by=by) for part in ("sum", "count"))
    return ratio(total, count)


def ledger(metric: str, *matchers: str, by: str = "") -> str:
    """Return the current value of a ledger metric."""
    return f"sum{_by(by)} ({_once(select(metric, *matchers))})"


def ledger_rate(metric: str, *matchers: str, by: str = "", per_s: int = 1) -> str:
    """Return the growth of a ledger total per `per_s` seconds."""
    per = f" * {per_s}" if per_s != 1 else ""
    return f"sum{_by(by)} ({_once(f'rate({select(metric, *matchers)}[$__rate_interval])')}){per}"


def booked(metric: str, *matchers: str, by: str = "") -> str:
    """Return the exact amount that the ledger booked in the selected range.

    A model that is new in the range counts in full, since it had nothing before; `increase` would miss its first
    turn. Everything counts in full if Prometheus is younger than the range. Looking back a day bridges outages of
    Prometheus.
    """
    now = ledger(metric, *matchers, by=by)
    before = f"sum{_by(by)} ({_once(f'last_over_time({select(metric, *matchers)}[1d] offset $__range)')})"
    return f"{now} - ({before} or {now} * 0)"


def fullest(metric: str, *matchers: str, by: str) -> str:
    """Return the maximum of a gauge that every worker reports for the same object."""
    return f"max by ({by}) ({select(metric, *matchers)})"


def worst(metric: str, *matchers: str, by: str) -> str:
    """Return the minimum of such a gauge, so that one worker's 0 counts."""
    return f"min by ({by}) ({select(metric, *matchers)})"


def ratio(part: str, whole: str) -> str:
    """Return a share, or nothing while the whole is 0."""
    return f"({part}) / (({whole}) > 0)"


def or_zero(query: str) -> str:
    """Return 0 where a series is missing, but nothing while its source is down: that must not pass for 0."""
    if any(name in query for name in _EXPORTED):
        return f"({query}) or 0 * max(runturn_dead_letters)"
    if "runturn_" in query:
        return f"({query}) or 0 * max(runturn_turns_in_flight)"
    return f"({query}) or vector(0)"


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""


def _once(series: str) -> str:
    return f"max without (instance) ({series})"
