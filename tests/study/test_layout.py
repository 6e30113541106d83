"""Where the files of a study lie: the library and the pipeline say the same."""

from pathlib import Path

import pytest
import yaml

from rs.storage.certificate_rows import sidecar_of
from rs.study import layout
from rs.study.layout import GridCell
from tests.support.helpers import ROOT

STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
ITEM = {"dataset": "digits", "method": "macer", "sigma": "0.5", "seed": "0"}
CELL = GridCell("digits", "macer", 0.5, 0)
MODELS, LOGS, RESULTS, WEIGHTS, ENSEMBLES = (
    Path(name, "digits") for name in ("models", "logs", "results", "weights", "ensembles")
)
TIMES = {
    "weights": f"--seconds {layout.pool_file(LOGS, 0.5, 'weights.csv').as_posix()}",
    "certify_ensembles": "--times logs/digits/0.5",
    "train": f"--log {CELL.log(LOGS, 'timing.csv').parent.as_posix()}",
}
"""Where stages write wall times, which are not outputs."""


@pytest.mark.parametrize(
    ("stage", "paths"),
    [
        ("train", [CELL.model(MODELS), CELL.log(LOGS, "history.csv")]),
        ("ensemble", [layout.pool_file(ENSEMBLES, 0.5, "pool.json").parent]),
        ("certify", [CELL.rows(RESULTS), sidecar_of(CELL.rows(RESULTS))]),
        ("weights", [layout.pool_file(WEIGHTS, 0.5, "a.json").parent]),
        ("certify_ensembles", [layout.pool_rows(RESULTS, 0.5, "a").parent]),
    ],
)
def test_the_pipeline_makes_what_is_read(stage, paths):
    texts = [STAGES[stage]["cmd"], *STAGES[stage]["outs"]]
    for name, value in ITEM.items():
        texts = [text.replace(f"${{item.{name}}}", value) for text in texts]
    command, *outs = texts
    assert outs == [path.as_posix() for path in paths]
    assert TIMES.get(stage, "") in command
