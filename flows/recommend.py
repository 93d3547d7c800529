"""The command `flows.recommend`: recommend from the current publication, for a user or any history.

python -m flows.recommend --dataset shop --user C-42
python -m flows.recommend --dataset shop --history sku-1,sku-9 --n 5 --json
"""

import argparse

from oneclass.flows import cli
from oneclass.flows.parameters import RecommendParameters
from oneclass.tasks.errors import InputError


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command."""
    description = "Recommendations from what is published, for a user of the logs or for any history."
    return cli.build_parser("flows.recommend", description, RecommendParameters)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = parser().parse_args(arguments)
    return cli.run_without_prefect(lambda: _answer(cli.parse_parameters(RecommendParameters, given)), debug=given.debug)


def _answer(given: RecommendParameters) -> str:
    if (given.user is None) == (not given.history):
        raise InputError("--user and --history: give one of them.")
    if given.n < 1:
        raise InputError(f"--n {given.n}: must be at least 1.")
    from oneclass.tasks import datasets
    from oneclass.tasks.recommend import load, text
    from oneclass.tasks.stores import home

    root = home.resolve_root(given.home)
    shop = load(root, datasets.load_dataset(given.dataset, root).name)
    filters = {"within": given.within or None, "without": given.without}
    unknown = shop.unknown([*given.history, *given.within])
    if given.user is not None:
        found = shop.recommend_for(given.user, given.n, **filters)
    else:
        found = shop.recommend(given.history, given.n, **filters)
    return text.format_json(shop, found, unknown) if given.json_ else text.format_table(shop, found, unknown)


if __name__ == "__main__":
    cli.run_main(main)
