"""Certify a model of scikit-learn on a table: z-scores, which have no bounds.

One noise is added to every feature, so features need one scale. In z-scores, a radius of 0.5 allows
one feature to change by half of its standard deviation, or several by less.
"""

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import rs

SIGMA, COPIES = 0.5, 10

x, y = load_breast_cancer(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=60, random_state=0, stratify=y)
scaler = StandardScaler().fit(x_train)

# The model must have seen noise: it is fitted to noisy copies of each row.
rng = np.random.default_rng(0)
clean = scaler.transform(x_train).repeat(COPIES, axis=0)
noisy = clean + SIGMA * rng.standard_normal(clean.shape)
model = LogisticRegression().fit(noisy, y_train.repeat(COPIES))


def base(z: torch.Tensor) -> torch.Tensor:
    """Return the logits (N, 1) of class 1; of several classes it would be decision_function."""
    return torch.from_numpy(model.decision_function(z.numpy()))[:, None]


# Numbers are float32 from here on; the certificate is about these.
rows = scaler.transform(x_test).astype(np.float32)
smoothed = rs.SmoothedClassifier(base, sigma=SIGMA, bounds=None)
certificates = smoothed.certify_many(rows, n=1_000, alpha=0.001)
radii = []
for certificate, label in zip(certificates, y_test.tolist(), strict=True):
    radii.append(certificate.radius if certificate.predict == label else 0.0)
certified = sum(radius > SIGMA for radius in radii) / len(radii)
print(f"class and radius {SIGMA} certified: {certified:.0%} of {len(radii)} rows")
