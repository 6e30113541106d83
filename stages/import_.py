"""Turn a checkpoint published by the field into a model folder."""

from rs.command_line.import_ import main
from rs.command_line.shell import run

if __name__ == "__main__":
    run(main)
