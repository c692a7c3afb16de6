"""``python -m calmtune`` is the command ``calmtune``."""

import sys

from calmtune.cli.main import main

sys.exit(main())
