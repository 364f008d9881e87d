"""How many hosts a fleet needs: a simulation of its queue, and what its servers carry. See docs/capacity.md.

Pure, but for `__main__`: values in, values out; no clock, no process, and all chance comes from a seed.
"""

from ops.capacity.arrivals import Turn, burst, poisson, together
from ops.capacity.figures import Figures, Waits, measure
from ops.capacity.lengths import Lengths, LogNormal
from ops.capacity.simulation import Fleet, Served, simulate

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
