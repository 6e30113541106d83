"""The machine: devices, arithmetic, processes, streams, scratch folders, progress, code hashes."""

from typing import Literal

Precision = Literal["float32", "tf32", "bfloat16"]
"""tf32: values in float32, and the inputs of products rounded to 10 bits, on a CUDA device only."""

PrecisionChoice = Literal[Precision, "auto"]
"""What users ask for: auto is tf32 on a CUDA device and float32 on a CPU
(``rs.runtime.device.precision_on``).
"""
