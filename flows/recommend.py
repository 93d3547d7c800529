"""The command `flows.recommend`: what is published for a user, or for any history.

python -m flows.recommend --dataset shop --user C-42
python -m flows.recommend --dataset shop --history sku-1,sku-9 --n 5 --json
"""

import argparse

from flows import command_line
from flows.parameters import Recommend
from tasks.errors import InputError


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    description = "Recommendations from what is published, for a user of the logs or for any history."
    return command_line.parser("flows.recommend", description, Recommend)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)
    return command_line.run_alone(lambda: _answer(command_line.parameters(Recommend, given)), debug=given.debug)


def _answer(given: Recommend) -> str:
    if (given.user is None) == (not given.history):
        raise InputError("--user and --history: give one of them.")
    if given.n < 1:
        raise InputError(f"--n {given.n}: must be at least 1.")
    from tasks import datasets
    from tasks.recommend import load, text
    from tasks.stores import home

    root = home.root(given.home)
    shop = load(root, datasets.load(given.dataset, root).name)
    filters = {"within": given.within or None, "without": given.without}
    unknown = shop.unknown([*given.history, *given.within])
    if given.user is not None:
        found = shop.recommend_for(given.user, given.n, **filters)
    else:
        found = shop.recommend(given.history, given.n, **filters)
    return text.as_json(shop, found, unknown) if given.json_ else text.plain(shop, found, unknown)


if __name__ == "__main__":
    command_line.start(main)
