"""What the code of a user's module may do to a command that runs it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from rs.command_line.attack import main as attack
from rs.command_line.certify import main as certify
from rs.command_line.doctor import main as doctor
from rs.command_line.train import main as train
from tests.support import helpers
from tests.support.helpers import exit_code, python, update_json, write_photos

MODULE = """
import os, sys
import torch
from torch import nn

class Own(BaseException):
    pass

class Linear(nn.Linear):
    def __init__(self):
        super().__init__(16, 2)
        torch.manual_seed(0)
        nn.init.normal_(self.weight)

    def forward(self, x):
        return super().forward(x.flatten(1))

class Late(Linear):
    def forward(self, x):
        return sys.exit() if len(x) > 2 else super().forward(x)

class Moves(Linear):
    def forward(self, x):
        os.makedirs("elsewhere", exist_ok=True)
        os.chdir("elsewhere")
        return super().forward(x)

class Untrainable(Linear):
    def train(self, mode=True):
        raise RuntimeError("it cannot be trained")

class Gradient(Linear):
    def forward(self, x):
        with torch.enable_grad():
            return super().forward(x)

class Score(Linear):
    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().clone().requires_grad_()
            score = torch.autograd.grad(super().forward(x).sum(), x)[0]
        return super().forward(x.detach() - score)

class InTraining(Linear):
    def forward(self, x):
        if self.training:
            raise RuntimeError("it has no loss")
        return super().forward(x)

class Pair(Linear):
    def forward(self, x):
        return super().forward(x), x

class Prints(Linear):
    def forward(self, x):
        print("forward")
        os.write(1, b"descriptor\\n")
        sys.__stdout__.write("stream\\n")
        return super().forward(x)

def raises():
    raise Own

def on_meta():
    return Linear().to("meta")

def meta():
    model = Linear()
    torch.set_default_device("meta")
    return model

def float64():
    torch.set_default_dtype(torch.float64)
    return Linear()

def float32():
    model = Linear()
    torch.set_default_dtype(torch.float64)
    return model

def elsewhere():
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    return Prints()
"""


@pytest.fixture(autouse=True)
def module(tmp_path, own_folder):
    """Name of a user's module in a folder of its own, beside pictures of two classes."""
    name = f"user_{tmp_path.name}"
    Path(f"{name}.py").write_text(MODULE)
    write_photos(Path("photos"), *helpers.arrays(6, 0))
    yield name
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)


def ended(capfd, command, *words):
    """Exit code of a command on the pictures, and the text on stdout and on stderr."""
    pictures = ("--images", "photos", "--sigma", "0.5", "--device", "cpu")
    return helpers.ended(capfd, command, *words, *pictures)


def refused(capfd, command, *words):
    """The line in which a command refuses its input, without an answer or a traceback."""
    code, out, err = ended(capfd, command, *words)
    assert (code, "Traceback" in err) == (2, False)
    assert command is train or out == ""  # trainings say where they start
    return err.splitlines()[-1]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("raises", "raises must return an nn.Module, but it raised Own; correct it"),
        ("Late", "it raised SystemExit"),
        (
            "Untrainable",
            "Untrainable must run on cpu, but it raised RuntimeError: it cannot be trained",
        ),
        ("Moves", "the classifier must not change the working directory"),
        (
            "on_meta",
            "is on the device meta, which stores no data; load them, or build the model on ",
        ),
        ("meta", "it sets torch's default device to 'meta', which stores no data"),
        ("float64", "must take images (1, 1, 4, 4), torch.float32, but it raised RuntimeError"),
    ],
)
def test_what_a_module_raises_is_one_line_and_no_success(capfd, module, function, message):
    assert message in refused(capfd, certify, f"{module}:{function}", "--out", "rows.tsv")
    assert not Path("rows.tsv").exists()
    code, out, err = ended(capfd, doctor, f"{module}:{function}")
    assert (code != 0, message in out + err, "Traceback" in err) == (True, True, False)


def test_a_module_that_ends_the_process_at_its_import_is_refused(capfd, module):
    Path(f"{module}.py").write_text("import sys\nsys.exit()")
    line = refused(capfd, certify, f"{module}:build", "--out", "rows.tsv")
    assert "but it raised SystemExit; correct it" in line


def test_a_module_that_changes_the_default_type_is_given_float32(capfd, module):
    words = (f"{module}:float32", "--out", "rows.tsv", "--noise", "gaussian")
    assert ended(capfd, certify, *words)[0] == 0
    torch.set_default_dtype(torch.float32)
    assert "must take" not in "".join(ended(capfd, doctor, f"{module}:float32")[1:])


BOTH = """
import contextlib, sys
from rs.command_line.main import main
for words in sys.argv[1:]:
    sys.argv = ["rs", *words.split()]
    with contextlib.suppress(SystemExit):
        main()
    if words.startswith("predict"):
        for stream in (sys.stdout, sys.stderr):
            print("next command", file=stream, flush=True)
"""


def test_what_a_module_prints_in_any_way_is_no_part_of_an_answer(module):
    """In a process of its own, whose stdout is that of the system."""
    words = f"{module}:Prints --images photos --sigma 0.5 --device cpu"
    done = python("-c", BOTH, f"predict --json --model {words}", f"doctor {words}", cwd=Path.cwd())
    said = ("forward", "descriptor", "stream")
    assert not any(word in done.stdout for word in said), done.stdout
    for part in done.stderr.split("next command\n"):
        assert all(word in part for word in said)
    answers, found = done.stdout.split("next command\n")
    assert [json.loads(line)["n"] for line in answers.splitlines()] == [1000] * 6
    assert found.startswith(("warning: ", "fault: ", "ok: "))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("Untrainable", "Untrainable must take images of shape (1, 4, 4), but it raised Runtime"),
        ("Late", "a model must not end the command that runs it, but it raised SystemExit; "),
        ("Pair", "base must return logits (N, K), got a tuple of 2; return the logits alone"),
        ("InTraining", "must be trainable by gaussian, but it raised RuntimeError: it has no loss"),
    ],
)
def test_a_module_that_cannot_be_trained_is_one_line_and_no_success(
    capfd, module, function, message
):
    assert message in refused(capfd, train, *TRAIN, f"{module}:{function}")
    assert not Path("model").exists()


@pytest.mark.parametrize("function", ["Gradient", "Score"])
def test_a_module_may_take_gradients_inside_its_forward_pass(capfd, module, function):
    assert ended(capfd, certify, f"{module}:{function}", "--out", "rows.tsv")[0] == 0
    assert Path("rows.tsv").is_file()
    _, out, err = ended(capfd, doctor, f"{module}:{function}")
    assert "logits depend on the image alone" in out
    assert ended(capfd, train, *TRAIN, f"{module}:{function}")[0] == 0
    assert "Error" not in out + err


def test_a_module_that_changes_the_folder_sends_no_rows_elsewhere(capfd, module):
    assert ended(capfd, certify, f"{module}:elsewhere", "--out", "rows.tsv")[0] == 0
    assert Path("rows.tsv").is_file()
    assert not any(Path("elsewhere").iterdir())


FOREIGN = """
import numpy as np
import torch
from torch import nn

import rs

class Engine:
    \"\"\"Another library's network, which torch does not know.\"\"\"

    def __init__(self, file):
        self.limit = np.load(file)

    def run(self, x):
        light = torch.from_numpy(x.numpy().mean((1, 2, 3)) - self.limit)
        return torch.stack([-light, light], 1)

class Foreign(nn.Module):
    def __init__(self, engine):
        super().__init__()
        self.engine = engine

    def forward(self, x):
        return self.engine.run(x)

def undeclared():
    return nn.Sequential(nn.BatchNorm2d(1), Foreign(Engine("net.npy")))

def declared():
    rs.uses("net.npy")
    return Foreign(Engine("net.npy"))
"""

METHOD = FOREIGN.replace("self.engine = engine", "self.run = engine.run").replace(
    "self.engine.run", "self.run"
)

GLOBAL = FOREIGN.replace("self.engine.run", "ENGINE.run") + 'ENGINE = Engine("net.npy")\n'


@pytest.fixture
def foreign(tmp_path):
    """Write a module of a network whose weights torch does not hold, and return its name."""
    np.save("net.npy", np.float32(0.5))

    def write(text):
        name = f"foreign_{tmp_path.name}"
        Path(f"{name}.py").write_text(text)
        return name

    return write


@pytest.mark.parametrize("text", [FOREIGN, METHOD, GLOBAL], ids=["object", "method", "global"])
def test_a_model_whose_weights_are_not_known_gets_no_rows(capfd, foreign, text):
    name = foreign(text)
    line = refused(capfd, certify, f"{name}:undeclared", "--out", "rows.tsv")
    assert 'call rs.uses("FILE")' in line
    assert not Path("rows.tsv").exists()


def test_rows_of_a_file_that_a_model_declares_are_not_taken_for_those_of_another(capfd, foreign):
    words = [certify, f"{foreign(FOREIGN)}:declared", "--out", "rows.tsv"]
    assert ended(capfd, *words)[0] == 0
    assert "already complete" in ended(capfd, *words)[2]
    np.save("net.npy", np.float32(0.5001))  # the base classifier is as accurate
    assert "sources is" in refused(capfd, *words)
    np.save("net.npy", np.float32(0.5))
    assert "already complete" in ended(capfd, *words)[2]


OUTSIDE = """
import numpy as np
import torch
from torch import nn

class Limit(nn.Module):
    def __init__(self):
        super().__init__()
        self.limit = nn.Parameter(torch.from_numpy(np.load("net.npy")))

    def forward(self, x):
        light = x.mean((1, 2, 3)) - self.limit
        return torch.stack([-light, light], 1)

NET = Limit()
NETS = [NET]

def helper(x):
    return NET(x)

def network(forward):
    kind = type("Outer", (nn.Module,), {"forward": forward, "part": lambda self, x: NET(x)})
    return kind()

def enclosed():
    own = Limit()
    return network(lambda self, x: own(x))

def named():
    return network(lambda self, x: NET(x))

def listed():
    return network(lambda self, x: sum(NETS[i](x) for i in range(1)))

def helped():
    return network(lambda self, x: helper(x))

def split():
    return network(lambda self, x: self.part(x))
"""


def refused_with_other_weights(capfd, name, function, limit):
    """Certify a model twice, and then with other weights; return why that is refused."""
    words = [certify, f"{name}:{function}", "--out", "rows.tsv"]
    assert ended(capfd, *words)[0] == 0
    assert "already complete" in ended(capfd, *words)[2]
    np.save("net.npy", np.float32(limit))
    del sys.modules[name]  # as in another process
    return refused(capfd, *words)


@pytest.mark.parametrize("function", ["enclosed", "named", "listed", "helped", "split"])
def test_weights_outside_a_network_are_part_of_what_it_is(capfd, foreign, function):
    line = refused_with_other_weights(capfd, foreign(OUTSIDE), function, 0.5001)
    assert "classifier is" in line


HIDDEN = """
import numpy as np
import torch
from torch import nn

LIMIT = {"limit": float(np.load("net.npy"))}

class Limit(nn.Module):
    def __init__(self):
        super().__init__()
        self.limit = float(np.load("net.npy"))

    def forward(self, x):
        light = x.mean((1, 2, 3)) - self.limit
        return torch.stack([-light, light], 1)

class Number(nn.Module):
    def forward(self, x):
        light = x.mean((1, 2, 3)) - LIMIT["limit"]
        return torch.stack([-light, light], 1)

def hooked():
    limit = Limit()
    network = nn.Identity()
    network.register_forward_hook(lambda module, inputs, output: limit(output))
    return network

def scripted():
    return torch.jit.script(Limit())
"""

ATTACK = ["--n", "200", "--alpha", "0.01", "--samples", "10", "--restarts", "1", "--device", "cpu"]


@pytest.mark.parametrize("function", ["Number", "hooked", "scripted"])
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_models_with_weights_that_no_fingerprint_sees_differ_by_their_logits(
    capfd, foreign, function
):
    line = refused_with_other_weights(capfd, foreign(HIDDEN), function, 0.51)
    assert "the model gives other logits" in line


STATE = """
import numpy as np
import torch
from torch import nn

class Centered(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.center = torch.from_numpy(np.load("net.npy"))
        self.last = nn.Linear(16, 2)

    def forward(self, x):
        return self.last(x.flatten(1) - self.center)

class Half(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.last = nn.Linear(16, 2).bfloat16()

    def forward(self, x):
        return self.last(x.flatten(1).bfloat16()).float()

class Unregistered(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Flatten(), nn.Linear(16, 2)]
        self.last = nn.Linear(2, 2)

    def forward(self, x):
        return self.last(self.layers[1](self.layers[0](x)))
"""


def test_rows_are_not_attacked_with_another_function_of_the_same_weights(capfd, foreign):
    name = foreign(OUTSIDE)
    model = f"{name}:Limit"
    words = ["rows.tsv", "--model", model, "--images", "photos", "--out", "attacks.tsv", *ATTACK]
    assert ended(capfd, certify, model, "--out", "rows.tsv")[0] == 0
    foreign(OUTSIDE.replace("- self.limit", "- self.limit**2"))
    del sys.modules[name]  # as in another process
    assert exit_code(attack, *words) == 2
    assert "the model gives other logits" in capfd.readouterr().err
    foreign(OUTSIDE)
    del sys.modules[name]
    assert exit_code(attack, *words) == 0


TRAIN = ["gaussian", "--out", "model", "--log", "log", "--epochs", "1", "--network"]


def test_a_model_loads_only_with_what_its_state_dict_leaves_out(capfd, foreign):
    name = foreign(STATE)
    assert ended(capfd, train, *TRAIN, f"{name}:Centered")[0] == 0
    words = [certify, "model", "--network", f"{name}:Centered", "--out", "rows.tsv"]
    np.save("net.npy", np.float32(0.6))
    assert "must give the same logits as in training" in refused(capfd, *words)
    np.save("net.npy", np.float32(0.5))
    assert ended(capfd, *words)[0] == 0


@pytest.mark.parametrize(("network", "code"), [("Half", 0), ("Centered", 2)])
def test_logits_may_differ_by_the_rounding_of_their_weights(capfd, foreign, network, code):
    """By a few steps of bfloat16, as on another processor."""
    name = f"{foreign(STATE)}:{network}"
    assert ended(capfd, train, *TRAIN, name)[0] == 0
    card = Path("model/model.json")
    probe = np.array(json.loads(card.read_text())["probe"])
    update_json(card, probe=(1.01 * probe).tolist())
    assert ended(capfd, certify, "model", "--network", name, "--out", "rows.tsv")[0] == code


def test_a_network_that_its_state_dict_does_not_decide_is_not_trained(capfd, foreign):
    assert "register its layers" in refused(capfd, train, *TRAIN, f"{foreign(STATE)}:Unregistered")
    assert not Path("model").exists()


def test_rows_of_pictures_that_have_other_names_now_are_not_taken_for_theirs(capfd, foreign):
    words = [certify, f"{foreign(STATE)}:Centered", "--out", "rows.tsv"]
    assert ended(capfd, *words)[0] == 0
    for path in sorted(Path("photos").rglob("*.png")):
        path.rename(path.with_name(f"new-{path.name}"))
    assert "pictures is" in refused(capfd, *words)


def test_a_file_that_a_model_declares_must_exist(capfd, foreign):
    name = foreign(FOREIGN.replace('uses("net.npy")', 'uses("other.npy")'))
    line = refused(capfd, certify, f"{name}:declared", "--out", "rows.tsv")
    assert "other.npy must be a file" in line


def test_a_model_without_files_can_say_so(capfd, foreign):
    text = FOREIGN.replace('uses("net.npy")', "uses()").replace("np.load(file)", "np.float32(0.5)")
    assert ended(capfd, certify, f"{foreign(text)}:declared", "--out", "rows.tsv")[0] == 0
