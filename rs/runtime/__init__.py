"""The machine: devices, arithmetic, processes, random streams, scratch folders, progress, fingerprints of code."""
