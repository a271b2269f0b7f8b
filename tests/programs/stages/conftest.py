"""The programs of this folder run as processes of their own."""

collect_ignore_glob = ["*worker*.py"]
