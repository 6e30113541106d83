"""Former import path of :mod:`rs.smoothing.attack`."""

from rs.smoothing.attack import *  # noqa: F403
