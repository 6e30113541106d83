"""Compiling networks: ``rs.models.backend``."""

import logging
import logging.handlers

import torch

from rs.models.backend import compiled
from tests.support.helpers import python, smallnet

FOUND = "No CUDA runtime is found, using CUDA_HOME='%s'"


def test_that_cuda_is_installed_without_a_gpu_is_no_warning_and_others_are():
    heard, logger = logging.handlers.BufferingHandler(10), logging.getLogger("torch.utils.cpp_extension")
    compiled(smallnet(), torch.device("cpu"))
    logger.addHandler(heard)
    logger.warning(FOUND, "/usr/local/cuda")
    logger.warning("another: %s", "one")
    logger.removeHandler(heard)
    assert [record.getMessage() for record in heard.buffer] == ["another: one"]


def test_torch_says_it_in_these_words_by_this_logger():
    code = "import inspect; from torch.utils import cpp_extension as c; print(c.logger.name, inspect.getsource(c))"
    name, _, source = python("-c", code).stdout.partition(" ")
    assert name == "torch.utils.cpp_extension"
    assert f'logger.warning("{FOUND}"' in source
