import errno
import fcntl
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from threading import Event, Thread

import pytest

from rs.runtime.scratch import discard, key, locked, scratch_folder
from tests.support.helpers import ROOT, refuses

WHAT = {"model": "a", "sigma": 0.5}


def _fail_midway():
    with scratch_folder(WHAT) as path:
        (path / "part").write_text("half")
        raise RuntimeError("midway")


def test_what_a_failure_leaves_is_found_by_the_same_work_alone():
    with pytest.raises(RuntimeError, match="midway"):
        _fail_midway()
    with scratch_folder({**WHAT, "sigma": 1.0}) as other:
        assert not (other / "part").exists()
    with scratch_folder(WHAT) as again:
        assert (again / "part").read_text() == "half"


@pytest.mark.parametrize("name", ["file/below/deep", "nowhere"])
def test_work_where_there_can_be_no_folder_is_refused(tmp_path, monkeypatch, name):
    (tmp_path / "file").write_text("years of work")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    monkeypatch.setenv("RS_WORK", str(tmp_path / name))
    with refuses(
        r"must be new or a folder, but .*/(file|nowhere) is not a folder; set RS_WORK",
    ):
        scratch_folder(WHAT).__enter__()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "nowhere"]


def test_the_folder_is_that_of_the_environment_or_lies_in_the_dvc_root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RS_WORK", raising=False)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable, value, expected in (
        (None, None, tmp_path / ".work"),
        ("DVC_ROOT", tmp_path / "root", tmp_path / "root" / ".work"),
        ("RS_WORK", tmp_path / "mine", tmp_path / "mine"),
        ("RS_WORK", "~", tmp_path),
    ):
        if variable:
            monkeypatch.setenv(variable, str(value))
        with scratch_folder(WHAT) as path:
            assert path.parent.resolve() == expected


def test_another_process_is_refused_and_the_death_of_the_first_frees_the_work():
    hold = (
        f"from rs.runtime import scratch; w = scratch.scratch_folder({WHAT!r}); "
        "print(w.__enter__(), flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold], cwd=ROOT, stdin=-1, stdout=-1, text=True
    )
    path = holder.stdout.readline().strip()
    message = f"process {holder.pid} is making the same thing .*{path}"
    with refuses(message), scratch_folder(WHAT):
        pytest.fail("two at the same work")
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with scratch_folder(WHAT) as mine:
        assert str(mine) == path


@pytest.mark.trust_only("kills and interruptions")
@pytest.mark.parametrize("anew", [False, True], ids=["removed", "made anew"])
def test_a_lock_on_a_file_that_its_owner_removed_meanwhile_is_no_lock(monkeypatch, anew):
    """The owner finishes between our opening of its lock file and our locking of it."""
    flock = fcntl.flock

    def late(lock, operation):
        path = Path(lock.name)
        path.unlink()
        if anew:
            path.touch()
        flock(lock, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with refuses("run again"), scratch_folder(WHAT):
        pytest.fail("worked in a folder that is not its own")


def test_what_was_left_of_finished_work_is_removed_unless_somebody_works_in_it(work):
    discard(WHAT)
    assert not work.exists()
    with pytest.raises(RuntimeError, match="midway"):
        _fail_midway()
    with scratch_folder({**WHAT, "sigma": 1.0}) as other:
        discard({**WHAT, "sigma": 1.0})
        discard(WHAT)
        assert not (work / key(WHAT)).exists()
        assert other.exists()
    assert list(work.iterdir()) == []


def test_who_wants_to_change_a_locked_folder_waits_and_the_lock_leaves_nothing(
    tmp_path, monkeypatch
):
    done, asking, flock = [], Event(), fcntl.flock

    def note(lock, operation):
        asking.set()
        flock(lock, operation)

    def second():
        with locked(tmp_path / "folder"):
            done.append("second")

    with locked(tmp_path / "folder"):
        monkeypatch.setattr(fcntl, "flock", note)
        other = Thread(target=second)
        other.start()
        assert asking.wait(60)
        done.append("first")
    other.join(60)
    assert done == ["first", "second"]
    assert [*tmp_path.rglob("*")] == [tmp_path / "folder"]


@pytest.mark.parametrize(
    ("number", "goes_on"), [(errno.EBADF, True), (errno.ENOLCK, True), (errno.EIO, False)]
)
def test_a_folder_that_its_disk_does_not_lock_is_changed_nevertheless(
    tmp_path, monkeypatch, number, goes_on
):
    def fails(lock, operation):
        raise OSError(number, "of the disk")

    monkeypatch.setattr(fcntl, "flock", fails)
    with (
        nullcontext() if goes_on else pytest.raises(OSError, match="of the disk"),
        locked(tmp_path),
    ):
        assert goes_on
