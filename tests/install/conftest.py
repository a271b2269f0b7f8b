"""The checks of this folder run in environments of their own: `make test-install`."""

collect_ignore = ["check.py", "check_wheels.py"]
