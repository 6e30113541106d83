"""Write certificate rows as a log in the field's six columns, which existing analysis scripts read."""

from rs.command_line.exchange import export_rows as main
from rs.command_line.shell import run

if __name__ == "__main__":
    run(main)
