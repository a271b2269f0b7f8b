"""Options that several commands of the command line have."""

from __future__ import annotations

import argparse
import sys


def add_machine(command: argparse.ArgumentParser, earlier: str, default: str = "tpu", first: str = "") -> None:
    """Add the option for the machine, which also has an earlier name; `first` lists names besides those of machines."""

    def hinted(value: str) -> str:
        print(f"redistrib: {earlier} is now --machine", file=sys.stderr)
        return value

    told = f"{first}h100, {default} (default) or another, or a profile's JSON file"
    command.add_argument("--machine", default=default, help=told)
    command.add_argument(earlier, dest="machine", type=hinted, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def add_problem(command: argparse.ArgumentParser) -> None:
    """Add what says from which type to which other one a plan leads."""
    command.add_argument(
        "source", help="type at the start, such as '[3{x}12, 12]': axis x cuts 12 rows into tiles of 3"
    )
    command.add_argument("target", help="type at the end")
    command.add_argument("--mesh", required=True, help="axes and sizes, such as x=4,y=6")
    command.add_argument("--target-mesh", help="mesh of the target type, if it is another one")
    command.add_argument("--dtype", default="float32", help="element type (default: %(default)s)")
    add_machine(command, "--cost-model", first="exact, paper, ")
    command.add_argument("--hosts", help="host of every device, such as a,a,b,b; default: as the machine assumes")
    command.add_argument("--algorithm", choices=("best", "paper"), default="best", help="paper: its search alone")
    command.add_argument("--no-over-partition", action="store_true", help="no slicing along replicated axes in between")
    command.add_argument("--memory-limit", help="bytes per device for source, target and scratch, such as 2GiB")
    command.add_argument(
        "--accumulate", help="element type to add partial sums in; default: float32 for bfloat16, float16"
    )
    command.add_argument(
        "--order", choices=("any", "fixed"), default="any", help="fixed: add partial sums in their order"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
