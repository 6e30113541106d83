"""A router from its targets to rows: training, one file, certificates, resuming, and what is refused."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from PIL import Image

import rs
from rs.command_line.main import COMMANDS
from rs.data.images import load_images
from rs.ensemble.spec import Member
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from rs.smoothing.routing import RoutedClassifier
from rs.statistics.radius import lower_bound, radius
from rs.storage.certificate_rows import read_any, read_rows
from rs.training.image_votes import read_targets
from tests.support.ensemble_specs import MADE, network, spec, written
from tests.support.helpers import exit_code, method_parameters, write_params, write_tiny

LEVELS = (0.25, 0.5)
TARGETS = ["--targets", "t.safetensors"]
EXPERTS = [{"path": f"models/gaussian-{sigma}", "sigma": sigma} for sigma in LEVELS]
SPEC = {"rule": "router", "router": {"path": "models/router", "sigma": 0.5}, "experts": EXPERTS}
OPTIONS = ["--dataset", "tiny", "--data", "data", "--params", "params.yaml", "--device", "cpu"]
FIRST = EXPERTS[0]["path"]
TRANSFER = ["--data", "data", "--device", "cpu", "--n", "100", "--out", "transferred.tsv"]
CERTIFY = ["spec.json", *OPTIONS, "--n", "300", "--n0", "50"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with experts, a router between them and its file."""
    folder = tmp_path_factory.mktemp("router")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("RS_WORK", str(folder / ".work"))
        write_tiny(folder / "data")
        router = method_parameters("router") | {"lam": 0.0, "eta": 0.0, "temperature": 0.1}
        write_params(folder / "params.yaml", router=router, targets={"draws": 40, "seed": 0})
        for expert in EXPERTS:
            train("gaussian", expert["sigma"], Path(expert["path"]).name)
        assert exit_code(COMMANDS["targets"], *[e["path"] for e in EXPERTS], *OPTIONS, "--out", "t.safetensors") == 0
        train("router", 0.5, "router", *TARGETS)
        Path("spec.json").write_text(json.dumps(SPEC))
        assert exit_code(COMMANDS["certify"], *CERTIFY, "--out", "rows.tsv") == 0
    return folder


@pytest.fixture(autouse=True)
def here(made, monkeypatch):
    monkeypatch.chdir(made)
    monkeypatch.setenv("RS_WORK", str(made / ".work"))


def train(method, sigma, name, *words):
    words = [method, "--sigma", sigma, *words, *OPTIONS, "--epochs", 12, "--out", f"models/{name}", "--log", name]
    assert exit_code(COMMANDS["train"], *words) == 0


def test_targets_are_radii_of_the_votes_and_the_classes_of_the_router_are_levels(made):
    images = load_images(Path("data"), "train")
    targets = read_targets(Path("t.safetensors"), images)
    possible = {float(radius(lower_bound(k, 40, 0.5), LEVELS[1])) for k in range(41)}
    assert targets.shape == (len(images), 3)
    assert all(min(abs(value - one) for one in possible) < 1e-6 for value in targets[:, 1].tolist())
    assert targets[:, 1].max() > 0
    assert checkpoint.read_card(Path("models/router")).classes == ["0.25", "0.5"]


def test_rows_have_the_certificates_of_the_library_and_predict_has_them_too(made, capfd):
    rows, images = read_rows(Path("rows.tsv")), load_images(Path("data"), "test")
    system = rs.load("spec.json").smooth(noise="grid")
    for row in rows.itertuples():
        certificate = system.certify(images.pixels(row.idx), 50, 300, 0.01, index=row.idx)
        assert (certificate.predict, certificate.level, certificate.radius) == (row.predict, row.level, row.radius)
    assert {"rows", "sigma", "classifier"} <= json.loads(Path("rows.json").read_text()).keys()
    assert (rows["radius"] > 0).any()
    files = [f"{index}.png" for index in range(3)]
    for index, file in enumerate(files):
        Image.fromarray(images.images[index, 0]).save(file)
    capfd.readouterr()
    draws = ["--n0", 50, "--n", 300, "--alpha", 0.01, "--seed", 0, "--device", "cpu", "--json"]
    assert exit_code(COMMANDS["predict"], *files, "--model", "spec.json", *draws) == 0
    for line, row in zip(capfd.readouterr().out.splitlines(), rows.itertuples(), strict=False):
        answer = json.loads(line)
        assert (answer["predict"], answer["level"], answer["radius"]) == (row.predict, row.level, row.radius)
    assert exit_code(COMMANDS["show"], "rows.tsv") == exit_code(COMMANDS["compare"], "rows.tsv", "rows.tsv") == 0
    assert "router" in capfd.readouterr().out


def test_an_interrupted_certification_continues_to_the_same_bytes(made, monkeypatch):
    draw, calls = RoutedClassifier._draw, []

    def interrupted(system, *words):
        calls.append(words)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return draw(system, *words)

    monkeypatch.setattr(RoutedClassifier, "_draw", interrupted)
    assert exit_code(COMMANDS["certify"], *CERTIFY, "--out", "again.tsv") == 130
    assert exit_code(COMMANDS["certify"], *CERTIFY, "--out", "again.tsv") == 0
    assert len(calls) == 4 + len(read_rows(Path("rows.tsv"))) - 3
    assert Path("again.tsv").read_bytes() == Path("rows.tsv").read_bytes()


def ensemble(name):
    """Write an ensemble of one model three times into NAME.json."""
    member = Member(path=FIRST, method="gaussian", seed=0, classifier=model_fingerprint(network(FIRST)))
    combination, fitted, _ = MADE[name]
    written(spec([member] * 3, fitted, **combination), f"{name}.json")


def test_rows_of_a_cascade_can_be_transferred():
    ensemble("cascade")
    assert exit_code(COMMANDS["certify"], "cascade.json", *CERTIFY[1:], "--out", "source.tsv") == 0
    words = ["source.tsv", "--from", "cascade.json", "--to", "cascade.json", *TRANSFER]
    assert exit_code(COMMANDS["transfer"], *words) == 0
    source, rows = read_rows(Path("source.tsv")), read_rows(Path("transferred.tsv"))
    assert rows.loc[rows["predict"] >= 0, "losses"].eq(0).all()
    assert rows["counts"].equals(source["counts"])


def test_an_expert_can_be_a_cascade():
    """Of one model three times, whose votes are those of the model."""
    ensemble("cascade")
    experts = [{"path": "cascade.json", "sigma": LEVELS[0]}, EXPERTS[1]]
    Path("with-cascade.json").write_text(json.dumps(SPEC | {"experts": experts}))
    assert exit_code(COMMANDS["certify"], "with-cascade.json", *CERTIFY[1:], "--out", "of-cascade.tsv") == 0
    assert read_rows(Path("of-cascade.tsv")).equals(read_rows(Path("rows.tsv")))


def forged(change):
    """Read the rows after a change of the first row that certifies something, of the mode in all rows."""
    head, *lines = Path("rows.tsv").read_text().splitlines()
    tables = [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]
    row = next(table for table in tables if float(table["radius"]) > 0)
    row |= {name: value(row) for name, value in change.items()}
    tables = [table | {"mode": row["mode"]} for table in tables]
    text = "\n".join("\t".join(table.values()) for table in tables)
    Path("forged.tsv").write_text(f"{head}\n{text}\n")
    return read_any(Path("forged.tsv"))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"level": lambda row: "0.5" if float(row["level"]) == 0.25 else "0.25"}, "level must be"),
        ({"radius": lambda row: "9.0"}, "radius must be"),
        ({"radius_router": lambda row: "9.0"}, "radius_router must be"),
        ({"radius_class": lambda row: "9.0"}, "radius_class must be"),
        ({"p_lower": lambda row: "0.9999"}, "p_lower must be"),
        ({"counts_router": lambda row: "0:150,1:151"}, "n0? must be"),
        ({"counts_router": lambda row: "7:300"}, "router votes must be for its levels"),
        ({"counts_router": lambda row: "-"}, "must have votes of n0 and of n draws"),
        ({"counts_router": lambda row: "0:150,1:150"}, "n0? must be"),
        ({"counts": lambda row: "0:150,1:150"}, "must be"),
        ({"n0": lambda row: "0", "counts0": lambda row: "-"}, "n0 must be"),
        ({"mode": lambda row: "router:0.1,0.2"}, "level must be"),
        ({"mode": lambda row: "certify"}, "mode must be that of one router"),
        ({"mode": lambda row: "router:0,0.5"}, "mode must be that of one router, of increasing levels"),
        ({"mode": lambda row: "router:0.25,1e999"}, "mode must be that of one router, of increasing levels"),
        ({"mode": lambda row: "router:0.5,0.25"}, "mode must be that of one router, of increasing levels"),
        ({"alpha": lambda row: "0.5"}, "p_lower must be"),
        ({"sigma": lambda row: "5.0"}, "radius_router must be"),
    ],
)
def test_a_forged_row_is_refused(change, rule):
    forged({})
    with pytest.raises(InputError, match=rule):
        forged(change)


def test_rows_of_a_router_without_its_votes_are_refused():
    lines = [line.split("\t")[:14] for line in Path("rows.tsv").read_text().splitlines()]
    Path("cut.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    with pytest.raises(InputError, match="rows of a router must say its votes"):
        read_any(Path("cut.tsv"))


def of_classes(path, classes):
    """Copy the model folder of the router, or of an expert, with other names or another number of classes."""
    card = replace(checkpoint.read_card(Path(path)), classes=classes)
    checkpoint.save(Path("models/other"), card.build(0), card)
    return {"path": "models/other", "sigma": card.sigma}


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        (lambda: SPEC | {"experts": [EXPERTS[0], EXPERTS[0]]}, "must have the classes 0.25, 0.25"),
        (lambda: SPEC | {"experts": EXPERTS[::-1]}, "must have the classes 0.5, 0.25"),
        (lambda: SPEC | {"experts": EXPERTS[:1]}, "experts"),
        (lambda: SPEC | {"default": 0.5}, "default"),
        (lambda: SPEC | {"experts": [EXPERTS[0] | {"sigma": 0.3}, EXPERTS[1]]}, "must be of sigma 0.3"),
        (lambda: SPEC | {"router": of_classes("models/router", ["0.25", "0.5", "1"])}, "but has 0.25, 0.5, 1"),
        (lambda: SPEC | {"experts": [EXPERTS[0], of_classes(EXPERTS[1]["path"], ["a", "b"])]}, "must be a classifier"),
        (lambda: SPEC | {"router": {"path": "bad.json", "sigma": 0.5}}, "got the router bad.json"),
        (lambda: SPEC | {"router": {"path": "none", "sigma": 0.5}}, "none"),
    ],
)
def test_a_file_that_is_no_router_is_refused_in_one_line(capfd, values, rule):
    Path("bad.json").write_text(json.dumps(values()))
    assert exit_code(COMMANDS["certify"], "bad.json", *CERTIFY[1:], "--out", "bad.tsv") == 2
    (line,) = [text for text in capfd.readouterr().err.splitlines() if text.startswith("error: ")]
    assert rule in line
    assert not Path("bad.tsv").exists()


def test_what_a_router_is_not_made_for_is_refused_in_one_line(capfd):
    ensemble("set")
    for command, words, rule in (
        ("certify", [*CERTIFY, "--out", "b.tsv", "--at-radius", "0.1"], "must be certified with all n draws"),
        ("certify", [*CERTIFY, "--out", "b.tsv", "--sigma", "0.5"], "sigma must be left out"),
        ("quantize", ["spec.json", "--data", "data"], "give its parts"),
        ("doctor", ["spec.json", "--data", "data"], "give its parts"),
        ("transfer", ["rows.tsv", "--from", "spec.json", "--to", "spec.json", *TRANSFER], "give its parts"),
        ("transfer", ["rows.tsv", "--from", "set.json", "--to", "set.json", *TRANSFER], "has scope set"),
        ("train", ["cat-rs", *OPTIONS, "--sigma", 0.5, *TARGETS, "--out", "c", "--log", "l"], "targets"),
        ("targets", [FIRST, FIRST, *OPTIONS, "--out", "u.safetensors"], "increasing"),
        ("targets", [FIRST, *OPTIONS, "--images", "3", "--out", "u.safetensors"], "images must be left out"),
    ):
        assert exit_code(COMMANDS[command], *words) == 2
        assert rule in capfd.readouterr().err.splitlines()[-1]


def test_a_router_of_less_noise_than_its_experts_is_allowed_with_a_note(capfd):
    card = replace(checkpoint.read_card(Path("models/router")), sigma=0.25)
    checkpoint.save(Path("models/low"), checkpoint.load_model(Path("models/router"))[0], card)
    Path("low.json").write_text(json.dumps(SPEC | {"router": {"path": "models/low", "sigma": 0.25}}))
    certificate = rs.load("low.json").smooth().certify(torch.full((1, 4, 4), 0.5), 50, 100)
    assert certificate.sigma == asdict(card)["sigma"]
    assert "can shorten radii" in capfd.readouterr().err
    low, high = (model_fingerprint(rs.load(name).module) for name in ("low.json", "spec.json"))
    assert low != high  # the noise of each part is a part of what it is
