"""Compiling networks: ``rs.models.backend``."""

import logging
import logging.handlers
from importlib.util import find_spec
from pathlib import Path

import torch

from rs.models.backend import compiled
from tests.support.helpers import smallnet

FOUND = "No CUDA runtime is found, using CUDA_HOME='%s'"


def test_that_cuda_is_installed_without_a_gpu_is_no_warning_and_others_are():
    heard, logger = (
        logging.handlers.BufferingHandler(10),
        logging.getLogger("torch.utils.cpp_extension"),
    )
    compiled(smallnet(), torch.device("cpu"))
    logger.addHandler(heard)
    logger.warning(FOUND, "/usr/local/cuda")
    logger.warning("another: %s", "one")
    logger.removeHandler(heard)
    assert [record.getMessage() for record in heard.buffer] == ["another: one"]


def test_torch_says_it_in_these_words_by_this_logger():
    source = Path(find_spec("torch.utils.cpp_extension").origin).read_text(encoding="utf-8")
    assert "\nlogger = logging.getLogger(__name__)\n" in source
    assert f'logger.warning("{FOUND}"' in source
