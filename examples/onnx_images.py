"""Certify an image classifier that ONNX Runtime runs: digits of 8x8 pixels in [0, 1].

The certificate holds for what is evaluated here: the ONNX file in this runtime, not the network of
torch that it was exported from.
"""

import tempfile
from pathlib import Path

import onnxruntime
import torch
from sklearn.datasets import load_digits
from torch import nn

import rs

SIGMA, TRAINED = 0.25, 1_000

digits = load_digits()
images = torch.from_numpy(digits.images / 16).float()[:, None]  # (N, 1, 8, 8)
images = (images * 255).round() / 255  # 8-bit pixels
labels = torch.from_numpy(digits.target)
torch.manual_seed(0)
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
settings = {"method": "gaussian", "epochs": 10, "training": {"eval_every": 0}}
robust = rs.train(network, images[:TRAINED], labels[:TRAINED], sigma=SIGMA, **settings)

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "digits.onnx"
    torch.onnx.export(
        robust.module,
        (images[:2],),
        file,
        input_names=["x"],
        dynamic_shapes=[{0: torch.export.Dim("batch")}],
        external_data=False,
        verbose=False,
    )
    session = onnxruntime.InferenceSession(file)


def base(x: torch.Tensor) -> torch.Tensor:
    """Return the logits (N, 10) of noisy images (N, 1, 8, 8); NumPy goes in and comes out."""
    (logits,) = session.run(None, {"x": x.numpy()})
    return torch.from_numpy(logits)


certificates = rs.SmoothedClassifier(base, sigma=SIGMA).certify_many(images[-30:], n=1_000)
radii = []
for certificate, label in zip(certificates, labels[-30:].tolist(), strict=True):
    radii.append(certificate.radius if certificate.predict == label else 0.0)
certified = sum(radius > SIGMA for radius in radii) / len(radii)
print(f"class and radius {SIGMA} certified: {certified:.0%} of {len(radii)} digits")
