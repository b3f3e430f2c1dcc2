"""Jobs that are run once: a frozen configuration, its result in a file under its key, wherever and whenever it runs.

`calibrant search`, `sweep` and `study` list their jobs and hand them to `run_jobs`.
"""
