"""Certify a classifier of texts on its embeddings (T, D), with a mask of padding.

What is certified: for this text's mask, no change of the embeddings within the radius changes the
class. The mask is part of the function, g_mask(x), and the same for all noisy copies. Noise on
padding is harmless, because the function multiplies it by zero; so it is the same as noise on the
words alone. Not certified: another mask, that is, a text of another length. (A mask that is
computed from the noisy embeddings would have to be computed inside the function; one that is
appended to x would be noisy itself.)

Words are discrete. Replacing one moves x by the distance of two rows of the table, so each set of
replacements whose squared distances add up to less than the squared radius is certified too.
"""

import torch
from torch import Tensor, nn

import rs

WORDS, LENGTH, WIDTH = 50, 12, 16  # of the vocabulary, of a padded text, of an embedding
SIGMA = 0.5

rng = torch.Generator().manual_seed(0)
table = torch.randn(WORDS, WIDTH, generator=rng)  # a fixed random projection of one-hot words


def texts(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return embeddings (count, T, D), masks (count, T), and whether most words are below 25."""
    lengths = torch.randint(5, LENGTH + 1, (count, 1), generator=rng)
    masks = (torch.arange(LENGTH) < lengths).float()
    labels = torch.arange(count) % 2
    is_typical = torch.rand(count, LENGTH, generator=rng) < 0.9
    low = is_typical == (labels[:, None] == 1)
    words = torch.randint(WORDS // 2, (count, LENGTH), generator=rng) + WORDS // 2 * ~low
    return table[words], masks, labels


class MeanOfWords(nn.Module):
    """The mean of hidden features of the words, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(WIDTH, 64)
        self.last = nn.Linear(64, 2)

    def forward(self, x: Tensor, masks: Tensor) -> Tensor:
        """Embeddings (N, T, D) and masks (N, T) -> logits (N, 2)."""
        features = torch.relu(self.hidden(x)) * masks[..., None]
        return self.last(features.sum(dim=1) / masks.sum(dim=1, keepdim=True))


class Masked(nn.Module):
    """The network as a function of embeddings alone, for the masks (B, T) of given texts."""

    def __init__(self, network: nn.Module, masks: Tensor) -> None:
        super().__init__()
        self.network = network
        self.masks = masks

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings (N, T, D) -> logits (N, 2); the copies of one text follow each other."""
        copies = len(x) // len(self.masks)
        return self.network(x, self.masks.repeat_interleave(copies, dim=0))


torch.manual_seed(0)
network = MeanOfWords()
objective = rs.loss("gaussian", sigma=SIGMA, bounds=None)
optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
for _ in range(300):
    x, masks, labels = texts(64)
    step = objective(Masked(network, masks), x, labels)
    optimizer.zero_grad()
    step.loss.backward()
    optimizer.step()

radii = []
for x, mask, label in zip(*texts(40), strict=True):
    smoothed = rs.SmoothedClassifier(Masked(network, mask[None]), sigma=SIGMA, bounds=None)
    certificate = smoothed.certify(x, n=1_000, alpha=0.001, index=len(radii))
    radii.append(certificate.radius if certificate.predict == label else 0.0)
certified = sum(radius > SIGMA for radius in radii) / len(radii)
print(f"class and radius {SIGMA} certified: {certified:.0%} of {len(radii)} texts")
