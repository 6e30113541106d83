"""Provenance: what certificate rows depend on, as the sidecar ``*.json`` next to a row file says.

:class:`Provenance` lists every key of a sidecar. Sidecars are written and read through it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from rs.errors import InputError
from rs.params import Count, record, validated
from rs.storage import files
from rs.storage.certificate_rows import sidecar_of
from rs.storage.probe import are_close

DECISIVE = ("device", "precision", "engine", "arithmetic", "torch", "numpy", "noise", "outputs")
"""What may change the digits of rows (:meth:`Provenance.computation`)."""

UNROUNDED = "not rounded"
"""The default of ``outputs``."""


class MemberIdentity(TypedDict):
    """A member of an ensemble."""

    method: str
    seed: int
    classifier: str  # fingerprint


@validated
class Provenance:
    """What rows depend on; ``None`` where the sidecar does not say it.

    Rows of other programs and older rows may say less. Keys that are not listed here are kept in
    ``other_keys``.
    """

    # the classifier
    model: str | None = None  # path or name
    weights: str | None = None  # SHA-256 of the file with the weights of each image
    classifier: str | None = None  # fingerprint of the model, or of the ensemble
    members: list[MemberIdentity] | None = None  # of an ensemble
    sources: str | None = None  # SHA-256 of the source files of the user's own networks
    probe: list[list[float]] | None = None  # logits of a user's network for fixed images
    scope: str | None = None  # one of rs.statistics.certificate.SCOPES

    # the images
    dataset: str | None = None
    classes: Count | None = None  # number of classes
    images: str | None = None  # fingerprint of the split
    pictures: str | None = None  # SHA-256 of file names, stated by rows of pictures

    # the settings of the certification
    sigma: float | None = None  # noise of the certificate, in pixels of [0, 1]
    n0: int | None = None  # samples that select the class
    n: int | None = None  # samples that bound its probability
    alpha: float | None = None  # failure probability
    seed: int | None = None  # of the noise
    subset: str | Mapping[str, int | Sequence[int]] | None = None  # of the split
    precision: str | None = None  # that was used
    engine: str | None = None  # that was used
    shortcut: bool | None = None  # whether images with a wrong selected class skip the n samples
    noise: str | None = None  # "gaussian" or "grid"; older rows do not say it and are gaussian
    stop: dict[str, Any] | None = None  # when to stop before n samples
    split_size: Count | None = None  # images of the split; older rows do not say it

    # the machine and the program
    device: str | None = None  # type, like "cpu"
    arithmetic: str | None = None  # "portable" or "native"
    rows: int | None = None  # number of rows
    code: str | None = None  # fingerprint of the code that made the rows
    versions: dict[str, str] | None = None  # of Python and of the libraries

    # of some rows only
    quantized: str | None = None  # fingerprint of the int8 networks
    calibration: Count | None = None  # number of images that calibrated the int8 networks
    instructions: str | None = None  # vector instructions that the int8 networks run with
    share: str | None = None  # like "3/16", of a row file with a share of the images
    base_accuracy: float | None = None  # of the base classifier without noise, on all shares
    outputs: str | None = None  # what members' outputs were rounded to; older rows of pools say it

    certificates: str | None = None  # of attack rows: SHA-256 of the certificate rows attacked
    attack: dict[str, Any] | None = None  # settings of the attack

    other_keys: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, values: Any, must: str, remedy: str) -> Provenance:
        """Make a record of the content of a sidecar.

        Raises:
            InputError: As :func:`rs.params.record`.
        """
        if not isinstance(values, dict):
            raise InputError(f"{must}, but it is a {type(values).__name__}; {remedy}")
        names = {entry.name for entry in fields(cls)} - {"other_keys"}
        field_values = {key: value for key, value in values.items() if key in names}
        other_keys = {key: value for key, value in values.items() if key not in names}
        return record(cls, field_values | {"other_keys": other_keys}, must, remedy)

    @classmethod
    def read(cls, rows: Path, remedy: str) -> Provenance:
        """Read the sidecar of a row file.

        Raises:
            InputError: If it is missing, is not JSON, or a value is of another type.
        """
        values = files.read_json(sidecar_of(rows))
        return cls.from_json(values, f"{rows} must have a sidecar of its rows", remedy)

    def write(self, rows: Path) -> None:
        """Write the sidecar of a row file."""
        files.write_json(sidecar_of(rows), self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the content of the sidecar: the keys in the order of the fields."""
        values = asdict(self)
        other_keys = values.pop("other_keys")
        for name, value in list(values.items()):
            if value is None and name != "stop":  # sidecars have always said "stop": null
                del values[name]
        return values | other_keys

    def joined(self, other: Provenance) -> Provenance:
        """Return what either says; ``other`` says it where both do."""
        stated = {name: value for name, value in vars(other).items() if value is not None}
        return replace(self, **stated)

    def difference(self, other: Provenance) -> str:
        """Return the first key, in alphabetical order, whose value differs; empty if none does.

        The accuracy of the base classifier is not compared: it follows from the rest. Logits are
        equal up to rounding (:func:`are_close`). Hashes are shortened.
        """
        own_values = self.to_json()
        other_values = other.to_json()
        keys = own_values.keys() | other_values.keys()
        for key in sorted(keys - {"base_accuracy", "probe"}):
            if own_values.get(key) != other_values.get(key):
                name = "the number of images" if key == "rows" else key
                text = f"{name} is {own_values.get(key)} there and {other_values.get(key)} here"
                return files.HASH.sub(r"\1", text)
        if self.probe and other.probe and not are_close(self.probe, other.probe):
            return "the model gives other logits here than there (probe)"
        return ""

    def computation(self) -> dict[str, str | None]:
        """Return :data:`DECISIVE` by name, with the minor series of libraries, like 2.9; empty if
        nothing is known.
        """
        if self == Provenance():
            return {}
        versions = self.versions or {}
        series = {name: ".".join(version.split(".")[:2]) for name, version in versions.items()}
        values = {"noise": "gaussian", "outputs": UNROUNDED} | series
        stated = self.to_json()
        return {name: stated.get(name, values.get(name)) for name in DECISIVE}
