"""Settings of the whole test suite."""

import os
from pathlib import Path

# before anything imports a library that would look for a model hub or a tracker
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"
# tiny models are quicker on one thread, and one thread adds numbers in one order
os.environ["OMP_NUM_THREADS"] = "1"

# programs that tests start find the package as the tests do, installed or not
_SOURCE = str(Path(__file__).parents[1] / "src")
os.environ["PYTHONPATH"] = os.pathsep.join([_SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])])
