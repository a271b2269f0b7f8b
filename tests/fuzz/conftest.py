"""What pytest leaves alone here: a program that starts as one process of several."""

collect_ignore_glob = ["*_worker.py"]
