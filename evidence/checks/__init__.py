"""The checks, a module per subject. Every module in this folder is loaded by ``python -m evidence``."""
