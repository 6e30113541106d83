"""The training methods, one file each."""

from rs.methods.advmacer import AdvMacer
from rs.methods.base import Method
from rs.methods.consistency import Consistency
from rs.methods.gaussian import Gaussian
from rs.methods.macer import Macer
from rs.methods.smoothadv import SmoothAdv
from rs.methods.smoothmix import SmoothMix
from rs.methods.stability import Stability

METHODS: dict[str, type[Method]] = {
    "gaussian": Gaussian,
    "stability": Stability,
    "smoothadv": SmoothAdv,
    "macer": Macer,
    "consistency": Consistency,
    "smoothmix": SmoothMix,
    "advmacer": AdvMacer,
}
"""From the name of a method, as in ``params.yaml``, to the dataclass of its hyper-parameters."""
