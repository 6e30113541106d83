"""Classify images of your own with a smoothed classifier, and certify them."""

from rs.command_line.predict import main
from rs.command_line.shell import run

if __name__ == "__main__":
    run(main)
