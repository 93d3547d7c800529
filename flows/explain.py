"""The command `flows.explain`: show a user's history, the published recommendations with reasons, and each model's list.

python -m flows.explain --dataset ml-1m --user 42 --titles movies.csv
python -m flows.explain --dataset ml-1m --user 42 --item 1193
"""

import argparse
from pathlib import Path

from oneclass.flows import cli
from oneclass.flows.parameters import ExplainParameters
from oneclass.tasks.errors import InputError


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command."""
    description = (
        "One user's history, what is published for them and why, and what each model of that run recommends; also "
        "written as a page."
    )
    return cli.build_parser("flows.explain", description, ExplainParameters)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = parser().parse_args(arguments)
    return cli.run_without_prefect(lambda: _explain(cli.parse_parameters(ExplainParameters, given)), debug=given.debug)


def _explain(given: ExplainParameters) -> str:
    """Return the explanation as text, with the path of its page."""
    from oneclass.tasks import datasets, item_titles
    from oneclass.tasks.explain import page, text
    from oneclass.tasks.explain.explanation import explain_user
    from oneclass.tasks.stores import home

    root = home.resolve_root(given.home)
    dataset = datasets.load_dataset(given.dataset, root)
    if given.top < 1:
        raise InputError(f"--top {given.top}: must be at least 1.")
    dataset_home = home.Home(root, dataset.name)
    explanation = explain_user(dataset_home, given.user, models=given.models, top=given.top, item_id=given.item)
    titles = item_titles.read_titles(Path(given.titles), dataset.columns.item) if given.titles else explanation.titles
    return f"{text.format_explanation(explanation, titles)}\n\nPage: {page.write_user_page(dataset_home, explanation, titles)}"


if __name__ == "__main__":
    cli.run_main(main)
