"""Faults in the middle of stages, by injection: every change of the disk of a stage is a point
where one can strike.

``python -m tests.support.faults STAGE`` makes a small study in a temporary folder, and for each
fault and point runs the stage in a process of its own, lets the fault strike, runs the same command
again, and compares what lies there with an unbroken run. Prints a line of JSON with what was tried
and what broke. Nothing in the library knows of it.
"""

import errno
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import chdir, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path

from rs.certification.quantize import library
from rs.command_line.main import COMMANDS
from rs.command_line.shell import run

ROOT = Path(__file__).parents[2]
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES)
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
LIMITS = (0, 10, 300, 1000, 3000, 10_000, 30_000)
"""Bytes of a file, at most."""
WALL_TIMES = ("timing", "provenance", "seconds", "times")
"""In the names of files whose bytes differ from run to run."""

OPTIONS = "--data data --params params.yaml --device cpu"
TUNING = {"epochs": 1, "seed": 7, "images": 2, "n0": 10, "n": 20}
TRIED = [{}, {"training": {"learning_rate": 0.01}}]
"""Settings of Gaussian training."""
WORDS = {
    "prepare": "digits --params params.yaml --out new",
    "train": f"gaussian --dataset tiny {OPTIONS} --sigma 0.25 --seed 0 --out new --log log",
    "import": "c.pth --architecture smallnet --sigma 0.25 --normalisation none --data data --out new --force",
    "certify": f"models/macer/0 --dataset tiny {OPTIONS} --out new.tsv",
    "ensemble": "tiny --sigma 0.25 --models models --params params.yaml --out new",
    "weights": f"tiny --ensembles ensembles {OPTIONS} --out new --seconds new.seconds.csv",
    "certify_ensembles": f"tiny --ensembles ensembles --weights weights {OPTIONS} --out new --times times",
    "targets": f"models/macer/0 --dataset tiny {OPTIONS} --out new.safetensors",
    "merge": "share-1.tsv share-2.tsv --out new.tsv",
    "report": "rows.tsv --out new.html --force",
    "board": "listed --out new --force",
    "export": "rows.tsv --out log.tsv --force",
    "fingerprint": f"--dataset tiny --prepared data --params params.yaml --out new --root {ROOT}",
    "tables": (
        "tiny --results study/results --weights study/weights --params study/params.yaml --out new"
    ),
    "tune": (
        "tiny gaussian --settings settings.yaml --sigma 0.25 --data validated --params params.yaml "
        "--device cpu --work tuning --out new.csv"
    ),
    "choose": "tiny --params params.yaml",
    "bundle": "tiny --root bundled --params bundled/params.yaml --out new.tar.xz --force",
    "quantize": "models/macer/0 --data data --count 4 --force",
}
"""What is struck: the words after the stage or command."""
WITH_THREADS = {
    "quantize": (
        "nncf.torch",
        "openvino.frontend.pytorch.fx_decoder",
        "torch._functorch.aot_autograd",
    )
}
"""Commands whose libraries keep threads, which a fork has not: none runs in the process that forks.
And what takes long to import.
"""


def command_of(stage):
    """The function of a stage, or of the command of ``rs`` that has no stage."""
    if (ROOT / "stages" / f"{stage}.py").is_file():
        return import_module(f"stages.{stage}").main
    return COMMANDS[stage]


class Points:
    """Counts the points of a run, and calls ``strike`` at one of them."""

    def __init__(self, at=None, strike=None, only_changes=False):
        self.at, self.strike, self.number, self.only_changes = at, strike, 0, only_changes

    def pass_one(self, is_before_change):
        if self.only_changes and not is_before_change:
            return
        if self.number == self.at:
            self.number += 1
            self.strike()
        self.number += 1

    def watch(self):
        """Make every change of the disk pass a point before and one after it, and in the middle of
        what is written.
        """
        for name in ("replace", "rename", "mkdir"):
            setattr(os, name, self._around(getattr(os, name), True))
        for name in ("unlink", "rmdir"):
            setattr(os, name, self._around(getattr(os, name), False))
        write_bytes, opened, points = Path.write_bytes, Path.open, self

        def torn(path, content):
            points.pass_one(True)
            write_bytes(path, content[: len(content) // 2])
            points.pass_one(False)
            written = write_bytes(path, content)
            points.pass_one(False)
            return written

        def watched(path, mode="r", *words, **options):
            file = opened(path, mode, *words, **options)
            return Appended(file, points) if mode == "a" else file

        Path.write_bytes, Path.open = torn, watched
        return self

    def _around(self, change, can_fail):
        def changed(*words, **options):
            self.pass_one(can_fail)
            done = change(*words, **options)
            self.pass_one(False)
            return done

        return changed


class Appended(io.TextIOBase):
    """A file that is appended to, with a point before, in the middle of and after each line."""

    def __init__(self, file, points):
        self.file, self.points = file, points

    def write(self, text):
        self.points.pass_one(True)
        self.file.write(text[: len(text) // 2])
        self.file.flush()
        self.points.pass_one(False)
        self.file.write(text[len(text) // 2 :])
        return len(text)

    def flush(self):
        self.file.flush()
        self.points.pass_one(False)

    def fileno(self):
        return self.file.fileno()

    def close(self):
        self.file.close()


def make_study(root, bundled=False):
    """Make all that the commands read in ``root``: data sets, one of them with a validation split,
    models, ensembles with their weights, a checkpoint, rows, and a study of rows alone.
    """
    import torch

    from rs.models import checkpoint
    from tests.support import helpers, tiny_bundle, tiny_pool, tiny_study

    members = [{"members": {"macer": [0, 1]}, "combinations": ["average", "optimal", "label"]}]
    with chdir(root):
        tiny_pool.write_three(Path("data"))
        helpers.write_tiny(Path("validated"), validation=2)
        for method, seed in tiny_pool.BLIND:
            tiny_pool.save_member(method, seed)
        values = tiny_pool.make_ensembles("ensembles", members)
        values |= {"datasets": {"tiny": {"source": "folder", "root": "raw"}}}
        values["recipes"]["tiny"]["targets"] = {"draws": 2, "seed": 0}
        values["datasets"]["digits"] = {"source": "sklearn", "test_share": 0.2, "split_seed": 0}
        Path("params.yaml").write_text(json.dumps(values))
        tried = TUNING | {"settings": {"gaussian": TRIED}}
        Path("settings.yaml").write_text(json.dumps(tried))
        tiny_pool.solve()
        torch.save(
            {"state_dict": checkpoint.load_model(Path("models/macer/0"))[0].network.state_dict()},
            "c.pth",
        )
        tiny_study.write_rows(tiny_study.make_rows(0.25, 0), Path("rows.tsv"))
        entry = {
            "name": "a",
            "dataset": "b",
            "network": "c",
            "source": "d",
            "licence": "e",
            "file": "rows.tsv",
        }
        tiny_study.write_rows(tiny_study.make_rows(0.25, 0), Path("listed/rows.tsv"))
        listed = [entry | {"sigma": 0.25, "n": tiny_study.N, "alpha": tiny_study.ALPHA}]
        Path("listed/board.yaml").write_text(json.dumps(listed))
        for number in (1, 2):
            words = f"{WORDS['certify']} --share {number}/2".replace(
                "new.tsv", f"share-{number}.tsv"
            )
            with suppress(SystemExit):
                run(COMMANDS["certify"], words.split())
        tiny_study.make_study(Path("study"))
        if bundled:  # with its report, which takes as long as all the rest
            tiny_bundle.make_bundled_study(Path("bundled"))


def run_unbroken(place, stage):
    """Run a stage in this process, so that the processes made of it need import nothing; return its
    folder.
    """
    if stage in WITH_THREADS:
        for name in WITH_THREADS[stage]:
            library(name)
        code, errors, _ = run_apart(place, stage)
        assert code == 0, errors
        return place
    os.environ["RS_WORK"] = str(place / ".work")
    words = WORDS[stage].split()
    try:
        with chdir(place), redirect_stdout(io.StringIO()):
            run(command_of(stage), words)
    except SystemExit as end:
        if end.code:
            raise
    return place


def run_apart(place, stage, prepare=lambda: None):
    """Run a stage in a process of its own, after ``prepare``, which may return the points that it
    passes.

    Returns:
        The exit code, or the signal less than 0; stderr; and the number of the points.
    """
    (errors, errors_in), (passed, passed_in) = (
        os.pipe(),
        os.pipe(),
    )  # which a limit of files does not reach
    process = os.fork()
    if process == 0:
        try:
            _child(place, stage, prepare, errors_in, passed_in)
        finally:
            os._exit(1)
    os.close(errors_in)
    os.close(passed_in)
    with os.fdopen(errors) as said, os.fdopen(passed) as points:
        text, number = said.read(), int(points.read() or 0)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), text, number


def _child(place, stage, prepare, errors, passed):
    code, points = 1, None
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(errors, 2)
        os.chdir(place)
        os.environ["RS_WORK"] = str(place / ".work")
        command = command_of(stage)
        points = prepare()
        run(command, WORDS[stage].split())
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os.write(passed, str(points.number if points else 0).encode())
    os._exit(code)


def made(place):
    """Bytes of the files in a folder by name, none of those that hold wall times; and the folders."""
    found = {}
    for path in place.rglob("*"):
        name = str(path.relative_to(place))
        has_times = any(word in name for word in WALL_TIMES)
        found[name] = None if has_times or path.is_dir() else path.read_bytes()
    return found


def copied(base, trial):
    shutil.rmtree(trial, ignore_errors=True)
    return shutil.copytree(base, trial)


EVERY = {"tables": 3}
"""Of stages that take long: one of so many points is struck. Each file passes five, so all five
kinds are met.
"""


def faults(base, trial, stage):
    """Yield the name of each fault, the exit codes that it may end with besides 0, and what
    prepares the process.
    """
    counts = (Points(only_changes=only) for only in (False, True))
    every, changes = (run_apart(copied(base, trial), stage, points.watch)[2] for points in counts)
    apart = EVERY.get(stage, 1)
    for name, number in SIGNALS.items():
        for at in range(0, every, apart if name == "kill" else 6 * apart):
            yield (
                f"{name} at {at}",
                [-number if name != "int" else 130],
                _watching(at, _signal(number)),
            )
    for number, error in enumerate(ERRORS):
        for at in range(number * apart, changes, len(ERRORS) * apart):
            yield (
                f"{errno.errorcode[error]} at {at}",
                [2],
                _watching(at, _failure(error), only_changes=True),
            )
    for limit in LIMITS:
        yield f"files of {limit} bytes", [2], _limit(limit)
    yield "clock going backwards", [], _backwards


def _watching(at, strike, only_changes=False):
    return lambda: Points(at, strike, only_changes).watch()


def _signal(number):
    return lambda: os.kill(os.getpid(), number)


def _failure(number):
    def fail():
        raise OSError(number, os.strerror(number), "somewhere")

    return fail


def _limit(size):
    """Let files have so many bytes at most."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _backwards():
    """Let clocks run backwards."""
    for name in ("time", "perf_counter"):
        clock = getattr(time, name)
        setattr(time, name, lambda clock=clock: -clock())


def broken(base, trial, stage, expected, prepare, unbroken):
    """What is wrong after a fault and another run; empty if nothing is."""
    place = copied(base, trial)
    code, errors, _ = run_apart(place, stage, prepare)
    if code not in ((*expected, 0)):
        return f"ends with {code}: {errors[-2000:]}"
    last = errors.splitlines()[-1:] if code in (2, 130) else []
    if "Traceback" in errors or (last and not last[0].startswith(("error: ", "interrupted"))):
        return f"says {errors[-2000:]}"
    code, errors, _ = run_apart(place, stage)
    if code:
        return f"the same command does not continue: {errors[-2000:]}"
    now = made(place)
    left = sorted(now.keys() - unbroken.keys())
    differs = sorted(name for name in unbroken if now.get(name, b"") != unbroken[name])
    return f"left {left[:3]}, other bytes in {differs[:3]}" if left or differs else ""


def main(stage):
    tried, wrong = Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        base, trial = Path(folder, "base"), Path(folder, "trial")
        base.mkdir()
        make_study(base, stage == "bundle")
        unbroken = made(run_unbroken(copied(base, trial), stage))
        for name, expected, prepare in faults(base, trial, stage):
            tried[f"{stage}: {name.split(' at ')[0]}"] += 1
            fault = broken(base, trial, stage, expected, prepare, unbroken)
            wrong += [f"{stage}, {name}: {fault}"] if fault else []
    print(json.dumps({"tried": tried, "broken": wrong}))


if __name__ == "__main__":
    main(sys.argv[1])
