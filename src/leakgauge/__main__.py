"""``python -m leakgauge``: the command line."""

from leakgauge.cli import main

if __name__ == "__main__":  # a worker process imports this module, and must not start a program of its own
    main()
