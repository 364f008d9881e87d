"""How many hosts a fleet needs: a simulation of its queue, and the load on its servers. See docs/capacity.md.

Pure, except for `__main__`: values in, values out; no clock, no process, and all randomness is seeded.
"""

from tests.tools.capacity.arrivals import Turn, burst, poisson, together
from tests.tools.capacity.figures import Figures, Waits, measure
from tests.tools.capacity.lengths import Lengths, LogNormal
from tests.tools.capacity.simulation import Fleet, Served, simulate

__all__ = [
    "Figures",
    "Fleet",
    "Lengths",
    "LogNormal",
    "Served",
    "Turn",
    "Waits",
    "burst",
    "measure",
    "poisson",
    "simulate",
    "together",
]
