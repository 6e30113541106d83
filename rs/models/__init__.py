"""Networks: architectures, checkpoints (of this project and published ones), and backends.

Their names are defined here, so that help and checks list them without loading torch.
"""

from typing import Literal

Architecture = Literal["resnet110", "resnet20", "resnet8", "fastnet", "resnet50", "smallnet"]

Engine = Literal["plain", "folded", "compiled"]
InferenceEngine = Literal[Engine, "quantized"]
"""Certification has one more: int8 (``rs.certification.quantize``)."""

FirstLayer = Literal["mean-std", "centre", "none"]
"""First layer of a published network: (x - mean) / std, x - mean, or x."""
