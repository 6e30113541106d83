"""Turn a checkpoint published by the field into a model folder."""

from rs.command_line.exchange import import_model as main
from rs.command_line.shell import run

if __name__ == "__main__":
    run(main)
