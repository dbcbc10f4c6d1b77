"""``python -m anyreward``."""

import sys

from anyreward.cli import main

if __name__ == "__main__":
    sys.exit(main())
