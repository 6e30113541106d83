"""Networks: architectures, checkpoints (of this project and published ones), names of the backends they run on."""

from typing import Literal

Precision = Literal["float32", "bfloat16"]

Engine = Literal["plain", "folded", "compiled"]
"""How a network runs in training and in certification."""

InferenceEngine = Literal[Engine, "openvino", "quantized"]
"""Certification has two more: OpenVINO's, in float32 and in int8 (``rs.certification.quantize``)."""
