"""Published checkpoints, in each of the field's layouts."""

import zipfile
from pathlib import Path

import pytest
import torch

from rs.command_line.exchange import import_model as main
from rs.data.prepared import read_meta, save_images
from rs.errors import InputError
from rs.models import architectures, checkpoint
from rs.models.published_checkpoints import import_checkpoint, read_network
from tests.support.helpers import exit_code

LAYOUTS = {
    "cohen": ("1.", "state_dict"),
    "imagenet": ("1.module.", "state_dict"),
    "parallel": ("module.", "state_dict"),
    "macer": ("", "net"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data set of 32x32 colour images."""
    images = (
        torch.randint(0, 256, (20, 3, 32, 32), generator=torch.Generator().manual_seed(0))
        .byte()
        .numpy()
    )
    labels = torch.arange(20).remainder(10).numpy()
    save_images(
        tmp_path / "data",
        "tiny",
        {"train": (images, labels), "test": (images, labels)},
        list("abcdefghij"),
    )
    return tmp_path / "data"


def network(seed: int = 0) -> torch.nn.Module:
    """A ResNet-20 whose running statistics are not the initial ones."""
    model = architectures.build("resnet20", (3, 32, 32), 10, [0.0] * 3, [1.0] * 3, seed)
    model(torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(seed)))
    return model.eval().network


def save(path: Path, net: torch.nn.Module, prefix: str, key: str, old: bool = False) -> Path:
    """Write a checkpoint; ``old`` files have no batch-norm counters."""
    state = {prefix + name: value for name, value in net.state_dict().items()}
    if old:
        state = {
            name: value for name, value in state.items() if not name.endswith("num_batches_tracked")
        }
    torch.save(
        {key: state, "epoch": 90, "arch": "cifar_resnet20", "optimizer": {"state": {}}}, path
    )
    return path


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_imported_network_gives_the_outputs_of_the_original(
    layout: str, old: bool, folder: Path, tmp_path: Path
) -> None:
    net = network()
    path = save(tmp_path / "checkpoint.pth.tar", net, *LAYOUTS[layout], old=old)
    meta = read_meta(folder)
    import_checkpoint(path, meta, "resnet20", "mean-std", 0.25, tmp_path / "model")
    model, card = checkpoint.load_model(tmp_path / "model")
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    mean, std = (torch.tensor(values)[:, None, None] for values in (meta.mean, meta.std))
    with torch.no_grad():
        assert torch.equal(model(x), net((x - mean) / std))
    assert card.sigma == 0.25


@pytest.mark.parametrize("normalisation", ["centre", "none"])
def test_the_normalisation_is_the_one_that_was_named(
    normalisation: str, folder: Path, tmp_path: Path
) -> None:
    net, meta = network(), read_meta(folder)
    path = save(tmp_path / "440.pth", net, "", "net")
    import_checkpoint(path, meta, "resnet20", normalisation, 0.5, tmp_path / "model")
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    shifted = x - torch.tensor(meta.mean)[:, None, None] if normalisation == "centre" else x
    with torch.no_grad():
        assert torch.equal(checkpoint.load_model(tmp_path / "model")[0](x), net(shifted))


def test_another_architecture_is_refused_and_nothing_is_written(
    folder: Path, tmp_path: Path
) -> None:
    path = save(tmp_path / "c.pth", network(), "1.", "state_dict")
    with pytest.raises(InputError, match="must hold the weights of resnet110"):
        import_checkpoint(path, read_meta(folder), "resnet110", "none", 0.5, tmp_path / "model")
    assert not (tmp_path / "model").exists()


class Evil:
    """Unpickling it would call ``print``."""

    def __reduce__(self):
        return print, ("executed",)


NONE = [
    [1, 2],
    torch.zeros(3),
    {"weights": {}},
    {"state_dict": torch.zeros(3)},
    {"net": [torch.zeros(3)]},
]
CODE = "must be a checkpoint .* but: it needs print, and code in a file is not run here$"


@pytest.mark.parametrize(
    ("content", "message"), [*((content, "must hold a dict") for content in NONE), (Evil(), CODE)]
)
def test_what_is_no_checkpoint_is_refused_and_never_executed(
    content, message, folder, tmp_path, capsys
) -> None:
    torch.save(content, tmp_path / "c.pth")
    with pytest.raises(InputError, match=message):
        import_checkpoint(
            tmp_path / "c.pth", read_meta(folder), "resnet20", "none", 0.5, tmp_path / "model"
        )
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"hello world", b"PK\x03\x04 and no more"])
def test_what_torch_did_not_write_is_refused_in_one_line(content, tmp_path):
    (tmp_path / "c.pth").write_bytes(content)
    with pytest.raises(InputError, match=r"torch.save did not write it, or it is damaged"):
        read_network(tmp_path / "c.pth")


def test_the_command_imports_and_refuses_an_unknown_normalisation(folder, tmp_path, capsys) -> None:
    path = save(tmp_path / "c.pth", network(), "1.", "state_dict")
    words = [str(path), "--architecture", "resnet20", "--sigma", "0.25", "--data", str(folder)]
    assert (
        exit_code(main, *words, "--normalisation", "mean-std", "--out", str(tmp_path / "model"))
        == 0
    )
    assert capsys.readouterr().out.endswith(
        f", sigma = 0.25, normalisation mean-std; model in {tmp_path / 'model'}\n"
    )
    assert (
        exit_code(main, *words, "--normalisation", "zscore", "--out", str(tmp_path / "other")) == 2
    )
    assert "'zscore' is not one of 'mean-std', 'centre', 'none'" in capsys.readouterr().err


def test_a_compressed_checkpoint_is_refused_before_it_is_read(tmp_path):
    """A few kilobytes of it could become gigabytes."""
    torch.save({"net": {"weight": torch.zeros(10**6)}}, tmp_path / "plain.pth")
    with zipfile.ZipFile(tmp_path / "plain.pth") as plain:
        content = {name: plain.read(name) for name in plain.namelist()}
    with zipfile.ZipFile(tmp_path / "c.pth", "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in content.items():
            packed.writestr(name, data)
    assert (tmp_path / "c.pth").stat().st_size < 10**5
    with pytest.raises(
        InputError, match=r"plain/data\.pkl in it is compressed, which torch.save does not do"
    ):
        read_network(tmp_path / "c.pth")
    assert read_network(tmp_path / "plain.pth")["weight"].shape == (10**6,)
