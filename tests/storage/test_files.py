import errno
import os
import subprocess
import sys

import pytest

from rs.params import MAX_DEPTH
from rs.storage import files
from tests.support.helpers import refuses

DEEP = b'{"a":' * MAX_DEPTH + b"0" + b"}" * MAX_DEPTH
"""Nested so little that Python reads it, and so much that what comes after does not."""


def test_a_file_is_replaced_when_the_writing_succeeds(tmp_path):
    path = tmp_path / "new" / "folder" / "a.txt"
    files.write_text(path, "one")
    files.write_text(path, "zwölf\n")
    assert path.read_bytes() == "zwölf\n".encode()
    assert os.listdir(path.parent) == ["a.txt"]


def fail_midway(path, is_folder):
    with files.replacing(path) as temporary:
        (temporary / "deep").mkdir(parents=True) if is_folder else temporary.write_text(
            "half of the n"
        )
        raise RuntimeError("midway")


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path, is_folder):
    path = tmp_path / "old"
    path.mkdir() if is_folder else path.write_text("old")
    with pytest.raises(RuntimeError, match="midway"):
        fail_midway(path, is_folder)
    assert os.listdir(tmp_path) == ["old"]
    assert os.listdir(path) == [] if is_folder else path.read_text() == "old"


def test_a_link_is_replaced_and_its_target_left_alone(tmp_path):
    """DVC may link an output to its cache, whose bytes must never change."""
    target, link = tmp_path / "cached", tmp_path / "out"
    target.write_text("cached")
    link.symlink_to(target)
    files.write_text(link, "new")
    assert (target.read_text(), link.read_text(), link.is_symlink()) == ("cached", "new", False)


def stale(path, process, machine=None, end=""):
    """What a process that was killed leaves of ``path``."""
    left = path.with_name(f".{path.name}.{machine or files._machine()}-{process}{end}.tmp")
    left.mkdir()
    (left / "half").write_text("")
    return left


@pytest.fixture
def dead():
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize("end", ["", ".old"])
def test_what_a_process_that_was_killed_has_left_is_removed_by_the_next_one(tmp_path, dead, end):
    stale(tmp_path / "a", dead, end=end)
    stale(
        tmp_path / "a", os.getpid(), end=end
    )  # in a container the next process often has the same number
    files.write_text(tmp_path / "a", "new")
    assert os.listdir(tmp_path) == ["a"]


def test_what_others_write_stays(tmp_path, dead):
    """Another process, another machine on a shared disk, and another file."""
    kept = [stale(tmp_path / "a", process) for process in {os.getppid(), 1}]
    kept.append(stale(tmp_path / "a", dead, "00000000"))
    kept.append(stale(tmp_path / "b", dead))
    files.write_text(tmp_path / "a", "new")
    assert sorted(tmp_path.iterdir()) == sorted([*kept, tmp_path / "a"])


def test_an_old_folder_is_never_half_there(tmp_path, monkeypatch):
    """It is moved aside as a whole, and back if the new one cannot take its place."""
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("")
    replace, calls = os.replace, []

    def second_fails(source, target):
        calls.append(sorted(os.listdir(path)) if path.exists() else None)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", second_fails)
    with pytest.raises(OSError, match="No space left"), files.replacing(path) as temporary:
        temporary.mkdir()
    assert calls == [["old"], None, None]
    assert (os.listdir(path), os.listdir(tmp_path)) == (["old"], ["folder"])


TWICE = b'[{"a": 1, "b": {"c": 1, "c": 1}}]'


def test_json_may_have_the_mark_that_editors_put_before_utf_8(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}', encoding="utf-8-sig")
    assert files.read_json(path) == {"a": 1}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b'{"a": 1} tail', b"[" * 10**5, b"9" * 10**4, DEEP, TWICE]
)
def test_a_file_that_is_not_json_is_the_users_mistake(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with refuses(r"a\.json must hold JSON, but"):
        files.read_json(path)
