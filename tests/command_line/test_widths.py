"""What the commands print fits a terminal of 80 columns, apart from warnings on stderr."""

import shlex

from rs.command_line.main import app
from tests.support.helpers import arrays, ended, write_photos

COMMANDS = """\
train gaussian --dataset tiny --data data --sigma 0.25 --epochs 1 --out first --log first.log
train gaussian --dataset tiny --data data --sigma 0.25 --epochs 1 --out first --log first.log
train advmacer --images photos --network own_network:build --sigma 0.25 --eval-every 1 \
    --epochs 1 --micro-batch 2 --batch 4 --out second --log second.log --device cpu
certify first --dataset tiny --data data --out first.tsv
certify first --dataset tiny --data data --out first.tsv
certify model --dataset tiny --data data --out model.tsv
certify model --images photos --n 100 --out photos.tsv --share 1/2
certify model --images photos --n 100 --out photos-2.tsv --share 2/2
merge photos.tsv photos-2.tsv --out merged.tsv
show first.tsv
show first.tsv model.tsv
show first.tsv model.tsv --radii 0,0.05,0.1,0.15,0.2,0.25,0.3,0.35,0.4,0.45,0.5
show first.tsv --radii 0,0.05,0.1,0.15,0.2,0.25,0.3,0.35,0.4,0.45,0.5
certify model --dataset tiny --data data --out a-long-name-of-rows-of-a-network-with-other-noise.tsv
show first.tsv a-long-name-of-rows-of-a-network-with-other-noise.tsv --radii 0.25,0.5
compare first.tsv model.tsv
compare first.tsv a-long-name-of-rows-of-a-network-with-other-noise.tsv
attack first.tsv --model first --data data --out attacks.tsv --samples 10 --n 100
show attacks.tsv
compare attacks.tsv attacks.tsv
report first.tsv model.tsv --data data --out report.html
doctor model --data data
predict photos/left/0.png photos/right/1.png --model model
predict photos/left/0.png --model model --picture picture.svg
export first.tsv --out log.tsv
zoo
"""

NETWORK = """\
import torch

def build():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
"""


def test_no_command_prints_a_line_of_more_than_80_columns(
    tiny_project, tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("RS_DEVICE", "cpu")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_network.py").write_text(NETWORK)
    write_photos(tmp_path / "photos", *arrays(12, 3))
    wide = []
    for command in COMMANDS.splitlines():
        code, out, err = ended(capfd, app, *shlex.split(command))
        assert code == 0, err
        lines = out.splitlines()
        lines += [line for line in err.splitlines() if not line.startswith("warning: ")]
        wide += [line for line in lines if len(line) > 80]
    assert wide == []
