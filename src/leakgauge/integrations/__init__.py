"""Where leakgauge meets other tools; what several of them share stands beside them."""
