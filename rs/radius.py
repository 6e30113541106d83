"""Former import path of :mod:`rs.statistics.radius`."""

from rs.statistics.radius import *  # noqa: F403
