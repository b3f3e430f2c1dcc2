"""Many heads on one cache: the plan, its jobs and their processes, and the table that compares them."""
