"""For all tests: no model hub is asked for anything, in this process and in those that it starts."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
