"""Former import path of :mod:`rs.statistics.metrics`."""

from rs.statistics.metrics import *  # noqa: F403
