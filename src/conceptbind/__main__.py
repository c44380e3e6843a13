"""``python -m conceptbind``: the command line."""

import sys

from conceptbind.cli import main

sys.exit(main())
