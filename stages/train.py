"""Train one base classifier: one method, one noise level, one seed."""

from rs.command_line.shell import run
from rs.command_line.train import main

if __name__ == "__main__":
    run(main)
