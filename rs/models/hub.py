"""Models in the layout of the Hugging Face hub; needs the extra ``hub``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard as HubCard
from huggingface_hub import PyTorchModelHubMixin, snapshot_download
from torch import Tensor, nn

from rs.models import checkpoint, model_card
from rs.models.checkpoint import ModelCard


class HubModel(nn.Module, PyTorchModelHubMixin):
    """A model of this project that has ``save_pretrained``, ``from_pretrained`` and ``push_to_hub``.

    The folder is a model folder: ``rs.load`` reads it too. Weights are safetensors; nothing else is ever loaded.
    """

    def __init__(self, network: nn.Module, card: ModelCard) -> None:
        super().__init__()
        self.network, self.card = network, card
        self._hub_mixin_config = {"architecture": card.architecture}  # config.json, by which the hub counts downloads

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, C, H, W) in [0, 1], or noisy ones, to logits (N, K)."""
        return self.network(x)

    @classmethod
    def load(cls, folder: Path | str) -> HubModel:
        """Load a model folder, in eval mode, on the CPU.

        Raises:
            InputError: As :func:`rs.models.checkpoint.load`.
        """
        return cls(*checkpoint.load(Path(folder))).eval()

    def generate_model_card(self, *args: Any, **kwargs: Any) -> HubCard:
        """Return the page of the model, without results; ``rs card`` writes one with results."""
        return HubCard(model_card.page(self.card))

    def _save_pretrained(self, save_directory: Path) -> None:
        checkpoint.save(save_directory, self.network, self.card)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        token: str | bool | None = None,
        **_: Any,
    ) -> HubModel:
        if Path(model_id).is_dir():
            return cls.load(model_id)
        folder = snapshot_download(
            model_id,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
            token=token,
            allow_patterns=[checkpoint.WEIGHTS, checkpoint.CARD],  # and no pickle
        )
        return cls.load(folder)
