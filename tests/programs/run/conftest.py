"""Scripts that tests run in processes of their own are no tests."""

collect_ignore_glob = ["*worker*.py"]
