"""Run benchmarks one after another, keep what they find, and make the tables of the page of figures of it.

    python -m tests.benchmarks                  all that the tables have
    python -m tests.benchmarks moves trace      some of them
    python -m tests.benchmarks --table          none: the tables are made anew of inspector/help/figures.json

Each runs in a process of its own and prints as it goes. With `--models` or `--count` it is a try, and nothing is kept.
"""

from __future__ import annotations

import datetime
import os
import sys
import tempfile
import traceback
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from multiprocessing import get_context

from tests.benchmarks import table
from tests.benchmarks.vocabularies import asked, main_of, parser, print_lines_at_once


def machine() -> str:
    """This machine in words: neither its name nor places on it."""
    from engine.measuring.roofline import machine
    from engine.model.load import load
    from engine.settings import LoadSettings

    here = machine(load(LoadSettings()).facts)
    libraries = f"MLX {here.mlx}, mlx-lm {metadata.version('mlx-lm')} on Python {here.python}"
    return f"{here.cores} cores, {here.processor}, {sys.platform}, {libraries}, backend {here.backend}"


def main() -> int:
    """Run what is asked for; returns the exit status."""
    made = parser(__doc__ or "")
    made.add_argument("names", nargs="*", metavar="BENCHMARK", help=", ".join(table.BENCHMARKS))
    made.add_argument("--table", action="store_true", help="run none, and make the tables anew")
    args = made.parse_args()
    print_lines_at_once()
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        what = asked(args, directory)
        for name in () if args.table else args.names or table.BENCHMARKS:
            print(f"\n==== {name}")
            before = os.getloadavg()[0]
            try:
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    figures = pool.submit(main_of, name, what).result()
            except Exception:  # what one can't do here, others may
                traceback.print_exc()
                failed = True
                continue
            load = f"load {max(before, os.getloadavg()[0]):.1f}"
            if not what.models and what.count is None:
                today = datetime.date.today().isoformat()
                print(*table.keep(name, figures, on=today, machine=machine(), load=load), sep="\n")
    table.write_page()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
