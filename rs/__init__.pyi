"""Types of the public names, which ``__init__.py`` imports when they are asked for."""

from rs.certification.load import load as load
from rs.errors import InputError as InputError
from rs.methods.loss import loss as loss
from rs.models.architectures import Normalize as Normalize
from rs.models.denoised import Denoised as Denoised
from rs.models.denoised import DiffusionDenoiser as DiffusionDenoiser
from rs.models.fingerprint import uses as uses
from rs.smoothing.classifier import SmoothedClassifier as SmoothedClassifier
from rs.statistics.certificate import ABSTAIN as ABSTAIN
from rs.statistics.certificate import Certificate as Certificate
from rs.storage.row_writer import write_certificates as write_certificates
from rs.training.train import train as train

__version__: str

MODULES: dict[str, str]
