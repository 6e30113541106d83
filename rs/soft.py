"""Former import path of :mod:`rs.smoothing.soft`."""

from rs.smoothing.soft import *  # noqa: F403
