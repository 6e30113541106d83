"""A study in legs: ``benchmarks.legs``, ``benchmarks.plan``, ``benchmarks.campaign``."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import campaign
from benchmarks.legs import Leg, chosen, legs
from benchmarks.plan import Step, read_plan
from rs import params
from rs.errors import InputError
from rs.statistics.metrics import acr
from rs.storage import certificate_rows, files
from tests.support.small_project import ROOT, environment, run, small_project
from tests.support.tiny_study import make_rows

READ = params.read
KNOWN = legs(params.read(ROOT / "dvc.yaml"), params.read(ROOT / "params.yaml"))
CELLS = ["certify@digits-gaussian-0.5-0", "certify@digits-macer-0.5-0"]


@pytest.mark.slow
def test_legs_are_the_cells_that_dvc_makes_of_the_pipeline():
    from dvc.repo import Repo

    stages = Repo(ROOT).index.stages
    theirs = {
        one.addressing: (
            one.cmd.split(),
            {dep.def_path for dep in one.deps if not hasattr(dep, "params")},
            {out.def_path for out in one.outs},
        )
        for one in stages
    }
    ours = {leg.name: ([*leg.command], {*map(str, leg.deps)}, {*map(str, leg.outs)}) for leg in KNOWN}
    assert ours == theirs


def test_patterns_choose_legs_and_an_unknown_one_is_refused():
    assert [leg.name for leg in chosen(KNOWN, "train@digits-*macer-0.5-0")] == [
        "train@digits-macer-0.5-0",
        "train@digits-advmacer-0.5-0",
    ]
    with pytest.raises(InputError, match=r"a plan must name cells of the pipeline, got 'train@svhn-.'; its stages are"):
        chosen(KNOWN, "train@svhn-*")


@pytest.fixture
def at_root(monkeypatch, work):
    """The project's own folder, with a place of its own for what is unfinished."""
    monkeypatch.chdir(ROOT)
    return work


@pytest.mark.usefixtures("at_root")
@pytest.mark.parametrize("name", ["fast", "paper"])
def test_a_committed_plan_makes_what_a_leg_needs_before_it_and_everything_once(name):
    steps = read_plan(name, Path("somewhere"))
    makers = {out for step in steps for out in step.leg.outs}
    assert len({step.name for step in steps}) == len(steps) == {"fast": 93, "paper": 24}[name]
    made = set()
    for step in steps:
        for dep in step.leg.deps:
            inside = {out for out in makers if dep == out or dep in out.parents or out in dep.parents}
            assert inside <= made or dep in made, (step.name, dep)
        made |= set(step.leg.outs)
    assert [step.name for step in steps if step.acr] == [f"certify@{steps[1].name.partition('@')[2]}-gaussian-0.25-0"]
    assert steps[1].words()[-4:] == ["--source", "parquet", "--root", "somewhere"]
    assert not any(out.is_absolute() or out.parts[0] in ("rs", "stages") for out in makers)


@pytest.mark.usefixtures("at_root")
def test_the_parameters_of_a_plan_take_the_place_of_the_projects(at_root):
    step = read_plan("fast", None)[2]
    given = Path(step.words()[step.words().index("--params") + 1])
    assert given == at_root / "fast.params.yaml"
    own, changed = params.read(ROOT / "params.yaml"), params.read(given)
    assert changed == own | {"dataset": "cifar10-fast", "sigmas": [0.25, 0.5, 1.0], "member_seeds": [1, 2]}
    assert step.name == "train@cifar10-fast-gaussian-0.25-0"


@pytest.mark.usefixtures("at_root")
def test_a_training_of_equal_time_and_its_certificates_lie_apart_from_the_pipelines(tmp_path, monkeypatch):
    steps = {step.name: step for step in read_plan("paper", None)}
    train, certify = (steps[f"equal-time/{stage}@cifar10-macer-1.0-0"] for stage in ("train", "certify"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"logs/cifar10/1.0/advmacer/0/provenance.json must be there before another"):
        train.words()
    files.write_json(Path("logs/cifar10/1.0/advmacer/0/provenance.json"), {"training_seconds": 12.5})
    assert train.words()[-2:] == ["--seconds", "12.5"]
    assert train.words()[train.words().index("--out") + 1] == "equal-time/models/cifar10/1.0/macer/0"
    assert certify.words()[3] == "equal-time/models/cifar10/1.0/macer/0"
    assert all(out.parts[0] == "equal-time" for out in (*train.leg.outs, *certify.leg.outs))


@pytest.mark.usefixtures("at_root")
def test_a_mistake_in_a_plan_is_named_by_its_key(tmp_path):
    (tmp_path / "plan.yaml").write_text("params: {}\nsteps:\n  - {legs: [code], wordz: x}\n")
    with pytest.raises(InputError, match=r"plan.yaml: steps.0.wordz is not a known key"):
        read_plan(str(tmp_path / "plan.yaml"), None)


def test_a_command_that_ends_in_time_is_told_from_one_that_does_not(tmp_path):
    mark = tmp_path / "ended"
    slow = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit())\n"
    slow += f"try: time.sleep(60)\nfinally: open({str(mark)!r}, 'w')"
    assert campaign.command([sys.executable, "-c", "pass"], 60)
    assert not campaign.command([sys.executable, "-c", slow], 5)
    assert mark.exists()  # it was asked to stop, not killed
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        campaign.command([sys.executable, "-c", "raise SystemExit(3)"], 60)


def test_a_leg_that_will_not_stop_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "PATIENCE", 0.5)
    number = tmp_path / "number"
    deaf = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    deaf += f"open({str(number)!r}, 'w').write(str(os.getpid())); time.sleep(3600)"
    assert not campaign.command([sys.executable, "-c", deaf], 5)
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)


def test_an_acr_out_of_bounds_ends_the_campaign(tmp_path):
    out = tmp_path / "rows.tsv"
    certificate_rows.write(made := make_rows(0.5, 1), out)
    leg = Leg("certify", ("python",), (), (out, out.with_suffix(".json")))
    value = acr(made)
    campaign.check(Step("certify", leg, "id", (value, value)))
    for bounds in ((value + 1e-9, 9.0), (0.0, value - 1e-9)):
        with pytest.raises(InputError, match=r"must lie in .* before anything else is believed, got"):
            campaign.check(Step("certify", leg, "id", bounds))


def step(name, code, out, deps=(), identity="id"):
    leg = Leg(name, ("python", "-c", code), tuple(deps), (out,))
    return Step(name, leg, identity)


def test_a_leg_that_fails_stops_those_that_need_it_and_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a, b, c = (Path(name) for name in "abc")
    steps = [
        step("a", "raise SystemExit(7)", a),
        step("b", f"open({str(b)!r}, 'w')", b, [a / "inside"]),
        step("c", f"open({str(c)!r}, 'w')", c),
    ]
    state, missing = {}, []
    how = [campaign.advance(one, state, time.monotonic() + 60, missing) for one in steps]
    assert how == ["failed with 7", "waits for one that failed", "finished"]
    assert missing == [a, b]
    assert json.loads(campaign.STATE.read_text()) == state
    assert list(state) == ["c"]


def test_what_other_code_or_parameters_made_is_made_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, state = Path("out"), {}
    write = "import time; open('out', 'w').write(str(time.time()))"
    for identity, again in (("one", True), ("one", False), ("two", True)):
        before = out.read_text() if out.exists() else None
        one = step("leg", write, out, identity=identity)
        assert campaign.advance(one, state, time.monotonic() + 60, []) == "finished"
        assert (out.read_text() != before) == again
    out.unlink()
    assert not campaign.finished(one, state)


def test_nothing_is_begun_when_the_time_is_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = step("leg", "open('out', 'w')", Path("out"))
    assert campaign.advance(one, {}, time.monotonic() + campaign.SHORTEST / 2, []) == "open"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("at_root")
def test_the_identity_of_a_leg_is_its_command_its_parameters_and_its_code(tmp_path, monkeypatch):
    def identities(name="fast", root=None):
        return {one.name: one.identity for one in read_plan(name, root)}

    before = identities()
    assert identities(root=Path("elsewhere")) == before
    assert len(set(before.values())) == len(before)
    values = params.read(ROOT / "params.yaml")
    values["recipes"]["cifar10-fast"]["advmacer"]["lam"] = 3.0
    monkeypatch.setattr(
        "benchmarks.plan.params.read", lambda path: values if path.name == "params.yaml" else READ(path)
    )
    changed = {name for name, identity in identities().items() if identity != before[name]}
    assert changed == {name for name in before if "advmacer" in name and "train" in name} | {"tables@cifar10-fast"}


def start(root, minutes):
    """Start the campaign of two legs in ``root``."""
    words = ["-m", "benchmarks.campaign", "--plan", "plan.yaml", "--budget-minutes", minutes]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *words], cwd=root, env=environment(), stdout=pipe, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.slow
def test_a_campaign_killed_in_a_training_ends_with_the_bytes_of_the_pipeline_and_dvc_takes_it_over(tmp_path):
    root = small_project(tmp_path / "copy", epochs=40)
    (root / "plan.yaml").write_text(json.dumps({"params": {}, "steps": [{"legs": CELLS}]}))  # JSON is YAML
    first = start(root, "10")
    while not list(root.glob(".work/*/checkpoint.pt")):
        assert first.poll() is None, first.stdout.read()
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    assert "told to stop" in first.communicate(timeout=60)[0]
    assert first.returncode != 0
    state = json.loads((root / "campaign.json").read_text())
    assert [name for name, one in state.items() if one["finished"]] == ["code", "prepare@digits"]
    assert list(root.glob(".work/*/checkpoint.pt"))

    second = start(root, "10")
    printed = second.communicate(timeout=300)[0]
    assert second.returncode == 0, printed
    assert re.findall(r"\[(\d)/6\] (\S+): finished", printed)[-1] == ("6", CELLS[1])
    assert not list(root.glob(".work/*/checkpoint.pt"))
    made = {path: path.read_bytes() for kind in ("models", "results") for path in (root / kind).rglob("*.[jst]*")}
    made = {path: text for path, text in made.items() if "seconds" not in path.name}
    assert len(made) == 8  # two models and two tables of rows, with their cards

    words = ("-m", "benchmarks.campaign", "--plan", "plan.yaml", "--budget-minutes", "0", "--cells")
    names = run(root, sys.executable, *words).split()
    assert sorted(names) == sorted(["code", "prepare@digits", *(c.replace("certify", "train") for c in CELLS), *CELLS])
    run(root, "dvc", "commit", "-f", *names)
    assert re.findall("Running stage '(.*)'", run(root, "dvc", "repro", *CELLS)) == ["code"]
    run(root, "dvc", "repro", "--force", *CELLS)
    assert {path: path.read_bytes() for path in made} == made
