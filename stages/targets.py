"""Write the targets of training images for cat-rs: the votes of a model on noisy copies of them."""

from rs.command_line.shell import run
from rs.command_line.targets import main

if __name__ == "__main__":
    run(main)
