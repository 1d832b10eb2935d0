"""``python -m evidence``."""

import sys

from evidence.cli import main

if __name__ == "__main__":
    sys.exit(main())
