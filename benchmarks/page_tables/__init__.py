"""The tables of the pages: functions of committed files that return column titles, then lines."""
