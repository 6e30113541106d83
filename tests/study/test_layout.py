"""Where the files of a study lie: the library, the pipeline and the checker of bundles say the same."""

from pathlib import Path

import pytest
import yaml

from rs import params
from rs.reporting import check
from rs.reporting.bundle import study_of
from rs.storage.certificate_rows import sidecar_of
from rs.study import layout
from rs.study.ensembles import declared
from rs.study.grid import cells
from rs.study.layout import GridCell
from tests.support.helpers import ROOT

PARAMS = params.read_params(ROOT / "params.yaml")
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
ITEM = {"dataset": "digits", "method": "macer", "sigma": "0.5", "seed": "0"}
CELL = GridCell("digits", "macer", 0.5, 0)
MODELS, LOGS, RESULTS, WEIGHTS, ENSEMBLES = (
    Path(name, "digits") for name in ("models", "logs", "results", "weights", "ensembles")
)
TIMES = {
    "weights": f"--seconds {layout.pool_file(LOGS, 0.5, 'weights.csv').as_posix()}",
    "certify_ensembles": f"--times {layout.pool_file(LOGS, 0.5, layout.ALONE_FILE).parent.as_posix()}",
    "train": f"--log {CELL.log(LOGS, 'timing.csv').parent.as_posix()}",
}
"""Where stages write wall times, which are no outputs."""


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


def test_the_checker_of_bundles_knows_where_rows_are():
    ensembles = [(sigma, one.slug) for sigma in PARAMS["sigmas"] for one in declared(PARAMS)]
    study = study_of(PARAMS, "digits")
    pairs = [(sigma, classifier) for sigma in study["sigmas"] for classifier in study["classifiers"]]
    rows = [cell.rows(RESULTS) for cell in cells(PARAMS, "digits")]
    rows += [layout.pool_rows(RESULTS, *one) for one in ensembles]
    assert {f"{check.rows_path(study, *pair)}.tsv" for pair in pairs} == {path.as_posix() for path in rows}
    assert len(pairs) == len({*rows})
