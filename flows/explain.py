"""One user explained: the history, what each model of the latest run recommends, and why.

python -m flows.explain --dataset ml-1m --user 42 --titles movies.csv
"""

import argparse
import os
from pathlib import Path

from flows import command_line
from tasks import datasets
from tasks.errors import InputError
from tasks.explain import item_titles
from tasks.explain import page as explanation_page
from tasks.explain import text as explanation_text
from tasks.explain.explanation import explain
from tasks.stores.home import Home


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.explain",
        description="One user's history, and what each model of the latest run recommends and why; also as a page.",
    )
    parser.add_argument("--dataset", required=True, metavar="NAME", help="the data set")
    parser.add_argument("--user", required=True, metavar="ID", help="the user's id, as it stands in the logs")
    parser.add_argument("--home", metavar="DIR", help="where everything is kept; by default $ONECLASS_HOME, else ./var")
    parser.add_argument(
        "--models", type=command_line.names, default=[], metavar="A,B,...", help="by default all of the latest run"
    )
    parser.add_argument(
        "--titles", metavar="FILE", help="titles of items: a table whose header names the ids and the titles"
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="recommendations of each model (default 10)")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        root = Path(given.home or os.environ.get("ONECLASS_HOME") or "var")
        declared = datasets.load(given.dataset, root)
        if given.top < 1:
            raise InputError(f"--top {given.top}: must be at least 1.")
        titles = item_titles.read(Path(given.titles), declared.columns.item) if given.titles else {}
        home = Home(root, declared.name)
        found = explain(home, given.user, models=given.models, top=given.top)
        page = explanation_page.write(home, found, titles)
        return f"{explanation_text.plain(found, titles)}\n\nPage: {page}"

    return command_line.run(command, debug=given.debug)


if __name__ == "__main__":
    raise SystemExit(main())
