"""Turn a raw data set into the files that training and certification read."""

from rs.command_line.prepare import main
from rs.command_line.shell import run

if __name__ == "__main__":
    run(main)
