"""Former import path of :mod:`rs.statistics.ensemble_weights`."""

from rs.statistics.ensemble_weights import *  # noqa: F403
