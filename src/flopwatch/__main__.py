"""``python -m flopwatch`` is the command line."""

import sys

from flopwatch.cli import main

sys.exit(main())
