"""Show a user's history, the published recommendations with reasons, and each model's list."""

from dataclasses import dataclass, field
from pathlib import Path

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import DatasetParameters, Names
from oneclass.tasks.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ExplainParameters(DatasetParameters):
    """Parameters of `flows.explain`.

    Attributes:
        user: the user's id, as it stands in the logs
        models: models of the published run, such as slim,wmf; all by default
        item: items: the rank of each in the published list, and why it is not higher
        titles: titles of items: a table whose columns [titles] in the data set's file names; by default those that were
            published
        n: recommendations of each model
    """

    user: str
    models: Names = field(default_factory=list[str])
    item: list[str] = field(default_factory=list[str])
    titles: str | None = None
    n: int = 10


def explain(given: ExplainParameters) -> str:
    """A user's history, what is published for them and why, and what each model of that run recommends.

    Also written as a page.
    """
    from oneclass.tasks.explain import views
    from oneclass.tasks.explain.explanation import explain_user
    from oneclass.tasks.ingest.attributes import read_titles

    dataset_home, dataset = given.find_home()
    if given.n < 1:
        raise InputError(f"--n {given.n}: must be at least 1.")
    explanation = explain_user(dataset_home, given.user, models=given.models, top=given.n, item_ids=given.item)
    titles = read_titles(Path(given.titles), dataset) if given.titles else explanation.titles
    page = views.write_user_page(dataset_home, explanation, titles)
    return f"{views.format_explanation(explanation, titles)}\n\nPage: {page}"


if __name__ == "__main__":
    run_as_program("explain")
