"""Publishing row files where another run has published its own: ``rs.storage.row_writer``."""

import os
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch

import rs
from rs.errors import NotDeterministicError
from rs.reporting.logs import read_alone
from rs.runtime import scratch
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.vote_counting import Tally, certificate_of_votes
from rs.statistics.sequential import Decider
from rs.storage import certificate_rows, row_writer
from rs.storage.certificate_rows import sidecar_of
from rs.storage.provenance import Provenance
from rs.storage.row_writer import write_rows
from tests.support.helpers import SHAPE, Linear, refuses

IMAGES = np.arange(2)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "rows" / "rows.tsv"


@contextmanager
def unpublished(out, n):
    """The rows of a run of ``n`` draws are made, and published when the body ends."""
    provenance = Provenance(classifier="a", scope="model", sigma=0.5, subset="all", n=n)
    with write_rows({out: provenance}, IMAGES) as writer:
        remaining = list(writer.remaining)
        for index in remaining:
            votes = [Tally(np.array([number, 0])) for number in (100, n)]
            certified = certificate_of_votes(*votes, 0.001, 0.5)
            writer.write(index, {out: certified.row(index, 0)})
        yield remaining


def publish(out, n):
    with unpublished(out, n):
        pass


def published(out):
    return {path: path.read_bytes() for path in (out, sidecar_of(out))}


def test_rows_that_one_process_refuses_are_discarded_by_all(out, work, monkeypatch):
    monkeypatch.setattr(row_writer.processes, "barrier", lambda: nullcontext(lambda: None))
    for rank, error in ((1, KeyboardInterrupt), (0, NotDeterministicError)):
        monkeypatch.setattr(
            row_writer.processes, "rank_and_world_size", lambda rank=rank: (rank, 2)
        )
        provenance = Provenance(classifier="a")
        with pytest.raises(error), write_rows({out: provenance}, IMAGES):
            raise error
        assert len(os.listdir(work)) == rank


def test_rows_are_published_elsewhere_if_another_run_has_published_others_meanwhile(out, work):
    """The others stay, and those that were refused need no further draw."""
    message = r"but n is 1000 there and 10000 here; remove it or choose another --out$"
    with refuses(message), unpublished(out, 10_000):
        publish(out, 1000)
        before = published(out)
    assert published(out) == before
    other = out.with_name("other.tsv")
    with unpublished(other, 10_000) as remaining:
        assert remaining == []
    assert certificate_rows.read_rows(other)["n"].tolist() == [10_000, 10_000]
    assert list(work.iterdir()) == []


@pytest.mark.trust_only("kills and interruptions")
def test_rows_that_another_run_publishes_just_before_the_lock_are_seen_under_it(out, monkeypatch):
    def late(folder, locked=scratch.locked):
        monkeypatch.setattr(scratch, "locked", locked)
        publish(out, 1000)
        return locked(folder)

    monkeypatch.setattr(scratch, "locked", late)
    with refuses("n is 1000 there and 10000 here"):
        publish(out, 10_000)
    assert certificate_rows.read_rows(out)["n"].tolist() == [1000, 1000]


@pytest.mark.parametrize("size", [5, 100, 200])
def test_a_file_that_was_cut_anywhere_continues_to_the_bytes_of_an_unbroken_one(out, work, size):
    """In its header, in the first row and in the second one."""
    with pytest.raises(KeyboardInterrupt), unpublished(out, 1000):
        raise KeyboardInterrupt
    (part,) = work.rglob("0.tsv")
    part.write_text(part.read_text()[:size])
    publish(out, 1000)
    whole = out.with_name("whole.tsv")
    publish(whole, 1000)
    assert out.read_bytes() == whole.read_bytes()


def test_the_same_rows_of_a_run_with_another_scratch_folder_are_kept(
    out, tmp_path, monkeypatch, capsys
):
    with unpublished(out, 1000):
        with monkeypatch.context() as patch:
            patch.setenv("RS_WORK", str(tmp_path / "elsewhere"))
            publish(out, 1000)
        before = {path: path.stat().st_mtime_ns for path in published(out)}
    assert {path: path.stat().st_mtime_ns for path in published(out)} == before
    assert "already complete; nothing to do" in capsys.readouterr().err


def test_a_file_of_something_else_that_has_come_meanwhile_is_refused_and_left_alone(out):
    message = "must be new or the sidecar of .*, but holds 'notes'"
    with refuses(message), unpublished(out, 1000):
        out.parent.mkdir()
        sidecar_of(out).write_text("notes")
    assert [path.name for path in out.parent.iterdir()] == ["rows.json"]
    assert sidecar_of(out).read_text() == "notes"


def python_certificates(noise="gaussian", **how):
    smoothed = SmoothedClassifier(Linear(), 2, 0.5, noise=noise)
    images = [torch.full(SHAPE, level / 255) for level in (30, 120, 140, 220)]
    return smoothed.certify_many(images, **how)


def test_certificates_of_every_kind_are_read(tmp_path):
    smoothed = SmoothedClassifier(Linear(), 2, 0.5)
    early = []
    for index, first in enumerate((0.4, 0.6, 1.0)):  # on the grid of 8 bits
        test = Decider([0.0, 0.2], 0.5, 0.001, 5000)
        early.append(smoothed.certify_until(torch.full(SHAPE, first), 100, test, index=index))
    assert len({certificate.n for certificate in early}) > 1
    x = torch.ones(SHAPE)
    skipped = [smoothed.certify(x, label=0), smoothed.certify(x, label=1)]
    path = tmp_path / "rows.tsv"
    for made in (early, skipped, skipped[:1]):
        indices = [5, 3, 9][: len(made)]
        labels = [0, 1, 1][: len(made)]
        rs.write_certificates(path, iter(made), iter(labels), indices=iter(indices), force=True)
        result = read_alone(path)
        assert result.rows["idx"].tolist() == indices
        assert result.rows["label"].tolist() == labels
        assert result.rows["radius"].tolist() == [one.radius for one in made]
        assert result.provenance.noise == made[0].noise


@pytest.mark.parametrize(
    ("changes", "others", "message"),
    [
        ({"labels": [0, 1]}, {}, "2 labels"),
        ({"certificates": []}, {}, "0 certificates"),
        ({"out": "rows.csv"}, {}, "named"),
        ({"labels": [0, 1, 1, -1]}, {}, "label"),
        ({"labels": [0, 1, 1, 2]}, {}, "label must be a class, from 0 to 1"),
        ({"certificates": iter([{}] * 4)}, {}, "got dict"),
        ({"labels": [0, 1, 1, 1.5]}, {}, "label must be a class, .* got 1.5"),
        ({"labels": ["cat", "dog", "dog", "dog"]}, {}, "label must be a class, .* got 'cat'"),
        ({"labels": torch.eye(4, dtype=torch.int64)}, {}, "label must be a class"),
        ({}, {"noise": "grid"}, "noise"),
        ({}, {"n": 90}, "n, got"),
    ],
)
def test_certificates_that_are_no_rows_are_not_written(
    tmp_path, monkeypatch, changes, others, message
):
    monkeypatch.chdir(tmp_path)
    made = python_certificates()[:2] + python_certificates(**others)[2:]
    given = {"out": "rows.tsv", "certificates": made, "labels": [0, 1, 1, 1]}
    with refuses(message):
        rs.write_certificates(**given | changes)
    assert list(tmp_path.iterdir()) == []


def test_written_certificates_are_replaced_only_if_one_says_so(tmp_path):
    made = python_certificates()
    rs.write_certificates(tmp_path / "rows.tsv", made)
    with refuses("must be new"):
        rs.write_certificates(tmp_path / "rows.tsv", made[:2])
    rs.write_certificates(tmp_path / "rows.tsv", made[:2], force=True)
    assert len(certificate_rows.read_rows(tmp_path / "rows.tsv")) == 2
