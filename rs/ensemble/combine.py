"""An ensemble of a user's own models: its file, with weights that are fitted to their images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from rs.data.meta import Meta
from rs.data.prepared import Images
from rs.ensemble.fit_weights import fit_for_all_images
from rs.ensemble.member_outputs import MemberOutputs, WeightSettings
from rs.ensemble.spec import EnsembleSpec, FittedWeights, Member, load_members
from rs.errors import InputError
from rs.models import architectures, checkpoint, zoo
from rs.models.fingerprint import check_identity, model_fingerprint
from rs.models.published_checkpoints import imported_card
from rs.params import packaged
from rs.recipes import load_section
from rs.runtime.device import limit_threads
from rs.smoothing.user_networks import register_network
from rs.statistics.certificate import UNLABELED
from rs.study.ensembles import Combination, EnsembleDeclaration, NamedWeights, members_text


def combine(
    models: Sequence[str],
    weights: NamedWeights,
    images: Images | None,
    split: str | None,
    sigma: float,
    *,
    device: torch.device,
    batch: int | None,
    out: Path,
) -> EnsembleSpec:
    """Write an average of models, with weights fitted to images, and return it.

    The file has the paths of the model folders from its own folder.

    Args:
        models: Model folders and ``zoo:NAME``.
        weights: What the weights are to minimize or maximize.
        images: To which they are fitted; they should not be certified. Equal weights need none.
        split: What the file calls these images.
        sigma: Noise of the training of all members, in pixels of [0, 1].
        device, batch: Where, and on how many noisy images at once, members are evaluated.
        out: The file ``*.json``.
    Raises:
        InputError: If the members do not fit each other or the images, or an image has no label.
    """
    members = []
    cards = []
    for name in models:
        folder = zoo.path_of_model(name)
        model, card = checkpoint.load_model(folder)
        path = name
        if not name.startswith(zoo.PREFIX):
            path = os.path.relpath(folder.resolve(), out.parent.resolve())
        identity = model_fingerprint(model)
        members.append(Member(path=path, method=card.method, seed=card.seed, classifier=identity))
        cards.append(card)
    origins = tuple((member.method, member.seed) for member in members)
    combination = Combination(rule="softmax", scope="global", weights=weights)
    spec = EnsembleSpec(
        declaration=EnsembleDeclaration(
            name=members_text(origins), members=origins, key=weights, combination=combination
        ),
        dataset=cards[0].dataset,
        sigma=sigma,
        members=members,
        fitted=None,
    )
    if weights == "equal":
        meta = None if images is None else images.meta
        load_members(members, spec.dataset, sigma, out, meta)
    elif images is None or split is None:
        raise InputError(f"{weights} weights must be fitted to images, got none; give images")
    else:
        spec = _fitted(spec, images, split, out, device, batch)
    spec.write(out)
    return spec


def _fitted(
    spec: EnsembleSpec,
    images: Images,
    split: str,
    source: Path,
    device: torch.device,
    batch: int | None,
) -> EnsembleSpec:
    """Return an ensemble with weights that are fitted to images.

    Raises:
        InputError: If the members do not fit each other or the images, or an image has no label.
    """
    if (images.labels == UNLABELED).any():
        raise InputError(
            f"each image must have a label, to fit weights, but some of {images.meta.name} have "
            "none; make a subfolder of each class"
        )
    settings = load_section(packaged(), "recipes.finetune.weights", WeightSettings)
    limit_threads(images.meta.shape)
    outputs = MemberOutputs.load(spec, source, images.meta, settings, device, batch)
    spec = fit_for_all_images(outputs, {spec.name: spec}, images, split)[spec.name]
    assert isinstance(spec.fitted, FittedWeights)
    return replace(spec, fitted=replace(spec.fitted, fingerprint=images.fingerprint))


def write_network(network: str, folder: Path, meta: Meta, sigma: float) -> None:
    """Write the network that a user's function builds as a model folder, with its weights.

    Args:
        network: ``package.module:function``.
        folder: The model folder; an earlier copy of the same network is replaced.
        meta: Classes and shape of its images, and the data set that the card names.
        sigma: Noise of its training, in pixels of [0, 1].
    Raises:
        InputError: If its weights are not known, it does not take the images, or ``folder`` holds
            something else.
    """
    code = architectures.USER_NETWORKS[register_network(network)]
    card = imported_card(network, meta, "none", sigma, {})
    checkpoint.check_model_folder(folder, card)
    model = card.build().eval()
    check_identity(model, code)
    card = replace(card, code=code, probe=checkpoint.probe(model, meta.shape))
    checkpoint.save(folder, model, card)
