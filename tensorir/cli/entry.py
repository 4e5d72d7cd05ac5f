"""The command line: its parser, and what ends a command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TextIO

import tensorir as tir
from tensorir.cli import bench, build, demo, doctor, emulate
from tensorir.support.errors import TensorIRError, full_text

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    try:
        status: int = options.run(options, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except TensorIRError as error:
        sys.stderr.write(full_text(error) + "\n")
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tensorir",
        description="Schedule tensor operators by hand, proved step by step.",
    )
    parser.add_argument("--version", action="version", version=f"tensorir {tir.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    does = "build an operator, check it, and time it beside numpy and torch"
    command = commands.add_parser(
        "bench", help=does, description=f"{does.capitalize()}.", epilog=bench.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    bench.add_arguments(command)
    command.set_defaults(run=bench.run)
    does = "build an operator for a target, and print its code or a report"
    command = commands.add_parser(
        "build", help=does, description=f"{does.capitalize()}.", epilog=build.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    build.add_arguments(command)
    command.set_defaults(run=build.run)
    does = "run a kernel of a PTX file without a GPU, and check what it does"
    command = commands.add_parser(
        "emulate", help=does, description=f"{does.capitalize()}.", epilog=emulate.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    emulate.add_arguments(command)
    command.set_defaults(run=emulate.run)
    does = "schedule a matrix product step by step, check it, and measure it"
    command = commands.add_parser("demo", help=does, description=does.capitalize() + ".")
    command.set_defaults(run=_demo)
    does = "tell what this machine has, what is missing, and what that costs"
    command = commands.add_parser("doctor", help=does, description=does.capitalize() + ".")
    command.set_defaults(run=_doctor)
    return parser


def _demo(_options: argparse.Namespace, out: TextIO) -> int:
    return demo.run(out)


def _doctor(_options: argparse.Namespace, out: TextIO) -> int:
    return doctor.doctor(out)
