"""Where leakgauge meets other tools; one file each."""
