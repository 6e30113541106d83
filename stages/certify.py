"""Certify one model: one row per test image."""

from rs.command_line.certify import main
from rs.command_line.shell import run

if __name__ == "__main__":
    run(main)
