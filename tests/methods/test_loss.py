"""``rs.loss``: a method's loss in a training loop of one's own, with the hyperparameters of its
paper.
"""

from types import SimpleNamespace

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import rs
from rs import params
from rs.errors import InputWarning
from rs.methods.loss import loss
from tests.support.helpers import SHAPE, generator, refuses, weights
from tests.support.networks import images, mlp
from tests.support.pages import ROOT, blocks

X = images(6, SHAPE)
Y = torch.arange(6) % 3


def network():
    return mlp(16, 3, activation=nn.ReLU)


def test_a_loss_that_needs_targets_says_so():
    with refuses(r"cat-rs must have the targets of its images, \(B, K\), got none"):
        rs.loss("cat-rs", sigma=0.25)(network(), X, Y)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ((X * 255).byte(), Y, r"floating-point pixels in \[0, 1\], got torch.uint8"),
        (X.new_full(X.shape, float("nan")), Y, r"pixels in \[0, 1\], got .* from nan to nan"),
        (X[0, 0, 0], Y[:4], r"the shape \(B, C, H, W\), .*, got \(4,\); give a batch"),
        (X, Y[:, None], r"of shape \(6,\), one per image, got torch.int64 of shape \(6, 1\)"),
        (X, Y.float(), "labels must be whole numbers .*, got torch.float32"),
        (X, Y.tolist(), "images and labels must be tensors, got Tensor and list"),
        (X.numpy(), Y, "images and labels must be tensors, got ndarray and Tensor"),
        (X, Y - 101, r"labels must lie in 0\.\.2, one for each logit, got -101 to -99"),
        (X, Y + 1, r"labels must lie in 0\.\.2, one for each logit, got 1 to 3"),
    ],
)
def test_a_first_batch_that_does_not_fit_is_refused_however_often_it_comes(x, y, message):
    objective = loss("smoothadv", 0.25)
    for _ in range(2):
        with refuses(message):
            objective(network(), x, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda z: z[:, 0], r"logits of shape \(6, K\), got \(6,\)"),
        (lambda z: z[:1], r"logits of shape \(6, K\), got \(1, 3\)"),
        (lambda z: z[:, None], r"logits of shape \(6, K\), got \(6, 1, 3\)"),
        (lambda z: z * float("nan"), "finite numbers, got NaN"),
    ],
)
def test_a_model_without_logits_is_refused(change, message):
    model = network()
    with refuses(message):
        loss("gaussian", 0.25)(lambda x: change(model(x)), X, Y)


def test_probabilities_in_place_of_logits_give_a_warning():
    """Cross-entropy would take a softmax of them again."""
    with pytest.warns(InputWarning, match="all 6 inputs .* sum to 1, .* leave out the softmax"):
        loss("gaussian", 0.25)(nn.Sequential(network(), nn.Softmax(dim=1)), X, Y)
    loss("gaussian", 0.25)(nn.Sequential(network(), nn.LogSoftmax(dim=1)), X, Y)


@pytest.mark.parametrize("targets", [torch.full((6, 2), 0.5), torch.full((6, 3), 0.5), -X[:, 0, 0]])
def test_targets_that_are_no_probabilities_of_the_classes_are_refused(targets):
    with refuses(r"targets must be the probabilities \(6, 3\)"):
        rs.loss("cat-rs", sigma=0.25)(network(), X, Y, targets=targets)


def test_labels_of_any_integer_type_count():
    values = set()
    for dtype in (torch.int64, torch.int32, torch.uint8):
        rng = generator()
        values.add(loss("gaussian", 0.25)(network(), X, Y.to(dtype), rng=rng).loss.item())
    assert len(values) == 1


def test_a_model_in_eval_mode_is_refused_unless_no_gradient_is_recorded():
    model = network().eval()
    with refuses(r"train mode, but Sequential is in eval mode.*\.train\(\).*no_grad"):
        loss("gaussian", 0.25)(model, X, Y)
    with torch.no_grad():
        loss("gaussian", 0.25)(model, X, Y)


def test_layers_of_a_model_in_train_mode_may_stay_frozen():
    frozen = network()
    for layer in frozen[:-1]:
        layer.eval()
    trains_head = network().eval()
    trains_head[-1].train()
    for model in (frozen, trains_head):
        assert loss("gaussian", 0.25)(model, X, Y).loss.isfinite()


def test_a_wrapper_that_does_not_average_gradients_after_an_attack_is_refused(tmp_path):
    """With ``static_graph`` torch takes the passes of the attack for those of the loss."""
    address = f"file://{tmp_path}/address"
    distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    try:
        objective = rs.loss("advmacer", sigma=0.25, warmup=0)
        with refuses("DistributedDataParallel must have static_graph=False, got True"):
            objective(DistributedDataParallel(network(), static_graph=True), X, Y)
        wrapped = DistributedDataParallel(network())
        objective(wrapped, X, Y).loss.backward()
        assert all(parameter.grad is not None for parameter in wrapped.parameters())
    finally:
        distributed.destroy_process_group()


def test_the_global_seed_or_a_generator_decides_the_noise():
    model, objective = network(), loss("gaussian", 0.5)

    def value(seed, rng=None):
        torch.manual_seed(seed)
        return objective(model, X, Y, rng=rng and generator(rng)).loss.item()

    assert value(1) == value(1) != value(2)
    assert value(1, rng=7) == value(2, rng=7) != value(1, rng=8)


def test_hyperparameters_are_those_of_the_nearest_noise_level_unless_given():
    defaults = params.packaged()["defaults"]["advmacer"]
    for sigma in (0.5, 0.6):
        assert loss("advmacer", sigma).method.epsilon == defaults["epsilon"][0.5]
    assert loss("advmacer", 3).method.draws == defaults["draws"][1.0]
    assert loss("advmacer", 0.01).method.draws != defaults["draws"][1.0]
    assert loss("advmacer", 0.5, epsilon=0.75).method.epsilon == 0.75


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("advmacr", 0.5), "the method must be one of gaussian, .*; got 'advmacr'"),
        (("advmacer", 64), r"sigma is in pixels of \[0, 1\] and must be at most 10, got 64"),
        (
            ("advmacer", 0.5, {"lamb": 1.0}),
            "AdvMacer must have valid values, but: lamb is not a known key; did you mean 'lam'",
        ),
    ],
)
def test_what_no_method_has_is_one_line(arguments, message):
    method, sigma, *changes = arguments
    with refuses(message):
        loss(method, sigma, **dict(*changes))


def shown(file):
    """Run a block of docs/training.md and return what it defines."""
    (block,) = [
        block for block in blocks(ROOT / "docs/training.md", "python") if block.file == file
    ]
    names = {"__name__": "shown"}
    exec(block.text, names)
    return SimpleNamespace(**names)


PAIRS = list(zip(X, Y, strict=True))
NAMED = [{"pixel_values": x, "labels": y} for x, y in PAIRS]
"""As transformers names them."""


def test_the_plain_loop_of_the_page_trains(capsys):
    model = network()
    before = weights(model)
    shown("my_package/plain_loop.py").train(model, DataLoader(PAIRS, batch_size=3))
    assert before != weights(model)
    assert "epoch 2: loss" in capsys.readouterr().out


@pytest.mark.filterwarnings("default")  # what Lightning says of itself and of the machine
def test_the_module_for_lightning_of_the_page_trains(tmp_path):
    lightning = pytest.importorskip("lightning", reason="no lightning here: pip install lightning")
    model = network()
    before = weights(model)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, default_root_dir=tmp_path
    )
    trainer.fit(
        shown("my_package/lightning_loop.py").Robust(model), DataLoader(PAIRS, batch_size=3)
    )
    assert before != weights(model)


class WithLogits(nn.Module):
    """A network with the interface of transformers."""

    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, pixel_values, labels=None):
        return SimpleNamespace(logits=self.network(pixel_values))


def test_a_network_may_return_its_logits_as_an_attribute():
    named = WithLogits()
    torch.manual_seed(0)
    step = loss("smoothadv", 0.25)(named, X, Y)
    torch.manual_seed(0)
    assert step.loss == loss("smoothadv", 0.25)(named.network, X, Y).loss


@pytest.mark.filterwarnings("default")
def test_the_trainer_of_transformers_of_the_page_trains(tmp_path):
    transformers = pytest.importorskip(
        "transformers", reason="no transformers here: pip install transformers"
    )
    pytest.importorskip("accelerate", reason="no accelerate here: pip install accelerate")
    model = WithLogits()
    before = weights(model)
    arguments = transformers.TrainingArguments(
        tmp_path, num_train_epochs=1, use_cpu=True, report_to=[]
    )
    shown("my_package/trainer_loop.py").RobustTrainer(model, arguments, train_dataset=NAMED).train()
    assert before != weights(model)
