"""The command `flows.explain`: a user's history, what is published for them and why, and what each model recommends.

python -m flows.explain --dataset ml-1m --user 42 --titles movies.csv
python -m flows.explain --dataset ml-1m --user 42 --item 1193
"""

import argparse
from pathlib import Path

from flows import command_line
from flows.parameters import Explain
from tasks.errors import InputError


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    description = (
        "One user's history, what is published for them and why, and what each model of that run recommends; also "
        "written as a page."
    )
    return command_line.parser("flows.explain", description, Explain)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)
    return command_line.run_alone(lambda: _explained(command_line.parameters(Explain, given)), debug=given.debug)


def _explained(given: Explain) -> str:
    """The explanation as text, and where the page is."""
    from tasks import datasets, item_titles
    from tasks.explain import page, text
    from tasks.explain.explanation import explain
    from tasks.stores import home

    root = home.root(given.home)
    dataset = datasets.load(given.dataset, root)
    if given.top < 1:
        raise InputError(f"--top {given.top}: must be at least 1.")
    of_dataset = home.Home(root, dataset.name)
    found = explain(of_dataset, given.user, models=given.models, top=given.top, item_id=given.item)
    titles = item_titles.read(Path(given.titles), dataset.columns.item) if given.titles else found.titles
    return f"{text.plain(found, titles)}\n\nPage: {page.write(of_dataset, found, titles)}"


if __name__ == "__main__":
    command_line.start(main)
