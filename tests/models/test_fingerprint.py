"""Descriptions of models: what must and must not show in a fingerprint."""

import enum
import functools
import re
import sys
import weakref
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rs.models.fingerprint import check_identity, describe, model_fingerprint, sources
from tests.support.helpers import SHAPE, python, refuses, smallnet

Pair = namedtuple("Pair", "left right")
Level = enum.IntEnum("Level", "LOW")
Meters = type("Meters", (float,), {})


@dataclass
class Settings:
    factor: float


class Model(nn.Module):
    """A model with attributes of any kind."""

    def __init__(self, **values):
        super().__init__()
        for key, value in values.items():
            setattr(self, key, value)


@dataclass(slots=True)
class Slots:
    factor: float


def multiply(by):
    return lambda x: x * by


VALUES = [
    True,
    1,
    1.0,
    0.0,
    -0.0,
    float("nan"),
    "1",
    b"1",
    Level.LOW,
    Meters(1),
    slice(1),
    range(1),
    torch.float32,
    torch.device("cpu"),
    torch.Size([1, 2]),
    (1, 2),
    [1, 2],
    set(),
    frozenset(),
    {1, 2},
    {"a": 1},
    {1: "a"},
    OrderedDict(a=1),
    Pair(1, 2),
    torch.tensor(1),
    torch.tensor(1.0),
    torch.tensor(1, dtype=torch.int32),
    torch.tensor([1]),
    torch.zeros(2, 3),
    torch.zeros(6),
    torch.zeros(6, dtype=torch.int32),
    torch.zeros(0, 2),
    torch.tensor([1 + 2j]),
    torch.tensor([1 + 2j]).conj(),
    nn.Parameter(torch.zeros(6)),
    np.float64(1),
    np.float32(1),
    np.array(1.0),
    np.array([1]),
    np.zeros((2, 3)),
    np.zeros((3, 2)),
    F.relu,
    torch.relu,
    torch.Tensor.relu,
    len,
    np.exp,
    functools.partial(F.relu),
    multiply(2),
    Settings,
    nn.ReLU,
    Settings(1),
    Settings(1.0),
    Slots(1),
    Slots(2),
    SimpleNamespace(a=1),
    nn.ReLU(),
    nn.Softplus(2),
    nn.Softplus(3),
    nn.Sequential(nn.ReLU(), nn.GELU()),
    nn.Sequential(nn.GELU(), nn.ReLU()),
    weakref.ref(Settings),
]


@pytest.mark.parametrize("place", ["attribute", "_hidden", "unregistered"])
def test_unlike_values_make_unlike_models_wherever_they_are(place):
    made = {
        "attribute": lambda value: Model(value=value),
        "_hidden": lambda value: nn.Sequential(nn.Identity(), Model(_hidden=value)),
        "unregistered": lambda value: Model(modules_={"key": [Model(value=value)]}),
    }[place]
    found = {}
    for number, value in enumerate(VALUES):
        other = found.setdefault(model_fingerprint(made(value)), number)
        assert other == number, (VALUES[other], value)


def test_hooks_show_by_name_in_their_order():
    models = [nn.Sequential(nn.Flatten()) for _ in range(4)]
    for model, hooks in zip(
        models, ((), (F.relu,), (F.relu, F.gelu), (F.gelu, F.relu)), strict=True
    ):
        for hook in hooks:
            model[0].register_forward_hook(hook)
    assert len({model_fingerprint(model) for model in models}) == 4


LEAVES = (st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3))


def containers(inner):
    lists = st.lists(inner, max_size=3)
    return lists | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2), inner)


@given(
    st.recursive(st.one_of(*LEAVES, st.binary(max_size=3)), containers, max_leaves=6),
    st.data(),
)
def test_a_description_says_all_of_a_value_and_a_copy_has_the_same(value, data):
    assert describe(value) == describe(
        eval(repr(value), {"nan": float("nan"), "inf": float("inf")})
    )
    other = data.draw(
        st.sampled_from([[value], (value,), {"": value}, repr(value), describe(value)])
    )
    assert describe(other) != describe(value)


def test_the_mode_gradients_and_the_place_in_memory_do_not_show():
    before = model_fingerprint(smallnet())
    assert model_fingerprint(smallnet().eval().requires_grad_(False)) == before
    turned = torch.arange(6).view(2, 3).T
    assert describe(turned) == describe(turned.contiguous())
    assert describe(turned.numpy()) == describe(turned.contiguous().numpy())


def test_the_order_in_which_a_set_was_filled_does_not_show():
    """8 and 0 have one place in a small set, which the first of them takes; elsewhere the seed of
    hashes decides.
    """
    first, second = set([0, 8]), set([8, 0])  # noqa: C405
    assert list(first) != list(second)
    assert describe(first) == describe(second)


@pytest.mark.trust_only
def test_a_model_has_one_fingerprint_in_every_process():
    """The seed of the hashes, which the order of a set follows, is 1 in the other one."""
    script = "from tests.models.test_fingerprint import *; print(of_many_kinds())"
    other = python("-c", script, PYTHONHASHSEED="1")
    assert other.stdout.strip() == of_many_kinds(), other.stderr


def of_many_kinds():
    """The fingerprint of a model that holds values of many kinds."""
    words = {f"word {number}" for number in range(20)}
    model = Model(
        a=words, b=nn.Flatten(), c=F.relu, d=Settings([1]), e=multiply(2), f=re.compile("x")
    )
    return model_fingerprint(model)


def test_what_holds_itself_is_described():
    values = [[1], [2]]
    for value in values:
        value.append(value)
    parent, twin = Model(child=Model()), Model(child=Model())
    for model in (parent, twin):
        model.child.parent = [model]
        model.child.method = model.extra_repr
    assert describe(values[0]) != describe(values[1])
    assert model_fingerprint(parent) == model_fingerprint(twin)
    twin.child.parent = [twin.child]
    assert model_fingerprint(parent) != model_fingerprint(twin)


@pytest.mark.parametrize(
    "value", [torch.ones(2).to_sparse(), torch.empty(2, device="meta"), nn.UninitializedParameter()]
)
def test_a_tensor_without_plain_numbers_is_refused_with_its_path_and_its_type(value):
    model = nn.Sequential(nn.Identity(), Model(layers={"a": [0, Settings(value)]}))
    held = f"{type(value).__module__}.{type(value).__qualname__}"
    path = re.escape("tensor 1.layers['a'][1].factor must be dense")
    with refuses(f"{path} .* got {held}; make it a parameter"):
        model_fingerprint(model)


def test_a_traced_network_shows_its_code_and_a_compiled_one_its_network():
    double, again, triple = (torch.fx.symbolic_trace(multiply(by)) for by in (2, 2, 3))
    assert model_fingerprint(double) == model_fingerprint(again) != model_fingerprint(triple)
    one, other = (torch.compile(Model(value=value)) for value in (1, 2))
    assert model_fingerprint(one) != model_fingerprint(other)
    assert model_fingerprint(one) == model_fingerprint(torch.compile(Model(value=1)))
    plain = Model(value=1)
    before = model_fingerprint(plain)
    torch.compile(plain)
    plain.compile()
    assert model_fingerprint(plain) == before


USERS = {
    "own.net": "import os, numpy, rs.errors\nfrom . import first\nfrom .inner.second import *\n"
    "from ..no import x\n",
    "own.__init__": "VALUE = 1\n",
    "own.first": "import own.net\ndef later():\n    import own_top, own_space.deep.third, no_x\n",
    "own.inner.__init__": "",
    "own.inner.second": "from ..first import later\nfrom . import sibling, VALUE\n",
    "own.inner.sibling": "# -*- coding: latin-1 -*-\n'\xe9'\n",
    "own_top": "import broken\nraise RuntimeError('is not run')\n",
    "own_space.deep.third": "from .fourth import missing\n",
    "own_space.deep.fourth": "",
    "broken": "def f(:\n",
}
UNUSED = {"own.unused": "", "own_space.unused": "import own.unused"}


def users_modules(root: Path, modules: dict[str, str]):
    for name, text in modules.items():
        path = root.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="latin-1")


def test_the_sources_of_a_users_module_are_those_of_all_that_it_reaches(tmp_path, monkeypatch):
    """By relative imports, in functions, packages without an ``__init__`` and circles; and nothing
    is imported.
    """
    users_modules(tmp_path, USERS | UNUSED)
    monkeypatch.syspath_prepend(tmp_path)
    loaded = set(sys.modules)
    found = sources(["own.net"])
    assert set(sys.modules) == loaded
    assert found == {
        name.removesuffix(".__init__"): text.encode("latin-1")
        for name, text in sorted(USERS.items())
    }
    for path in tmp_path.rglob("*.py"):  # as a checkout on Windows may have them
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert sources(["own.net"]) == found


def test_installed_packages_and_modules_without_files_have_sources_only_if_asked_for():
    name = "numpy.linalg"
    assert sources(["sys", "no_such_module", "rs.errors"]) == {}
    assert list(sources([name])) == [name]


def test_a_module_made_in_memory_has_no_source_but_its_parent_has(tmp_path, monkeypatch):
    """As ``__main__`` of a notebook."""
    users_modules(tmp_path, {"own_parent.__init__": ""})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "own_parent.made", ModuleType("own_parent.made"))
    assert sources(["own_parent.made"]) == {"own_parent": b""}


def test_what_torch_makes_of_a_network_hides_no_weights():
    network = smallnet()
    images = torch.zeros(2, *SHAPE)
    made = [
        torch.fx.symbolic_trace(network),
        torch.export.export(network, (images,)).module(),
    ]
    for model in [network, *made]:
        check_identity(model, [])


class Vector:
    def __init__(self, values):
        self.values = values


@pytest.mark.parametrize(
    "value", [{"a": [1.0, None]}, Level.LOW, Meters(2), np.zeros(3), F.relu, Vector([1, 2])]
)
def test_settings_and_what_a_fingerprint_sees_are_not_hidden_weights(value):
    check_identity(Model(value=value), [])


@pytest.mark.parametrize(
    "value", [Vector(np.zeros(3)), [Vector({"a": torch.zeros(3)})], Vector(Vector(smallnet()))]
)
def test_numbers_within_other_objects_are_hidden_weights(value):
    with refuses(r"weights .* value"):
        check_identity(Model(value=value), [])
