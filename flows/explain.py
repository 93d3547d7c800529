"""Show a user's history, and the published recommendations with reasons."""

from dataclasses import dataclass, field

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import Count, DatasetParameters


@dataclass(frozen=True, kw_only=True)
class ExplainParameters(DatasetParameters):
    """Parameters of `flows.explain`.

    Attributes:
        user: the user's id, as it stands in the logs
        item: items: the rank of each in the published list, and why it is not higher
        n: recommendations to show
    """

    user: str
    item: list[str] = field(default_factory=list[str])
    n: Count = 10


def explain(given: ExplainParameters) -> str:
    """A user's history, what is published for them and why; also written as a page."""
    from oneclass.tasks.explain import views
    from oneclass.tasks.explain.explanation import explain_user

    dataset_home, _ = given.find_home()
    explanation = explain_user(dataset_home, given.user, top=given.n, item_ids=given.item)
    page = views.write_user_page(dataset_home, explanation)
    return f"{views.format_explanation(explanation)}\n\nPage: {page}"


if __name__ == "__main__":
    run_as_program("explain")
