"""Settings of the whole test suite."""

import os

# before anything imports a library that would look for a model hub or a tracker
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"
# tiny models are quicker on one thread, and one thread adds numbers in one order
os.environ["OMP_NUM_THREADS"] = "1"
