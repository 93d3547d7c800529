"""The evaluation protocols: how each holds edges out, and its metrics. The only definition of both."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Protocol:
    """One way to hold edges out.

    Attributes:
        title, meaning: texts for the report.
        main_metrics: the columns of the leaderboard. The first ranks the models and is the metric of comparisons.
        tuned_by: the metric on validation users or edges that settings are chosen by.
    """

    title: str
    meaning: str
    main_metrics: tuple[str, ...]
    tuned_by: str

    @property
    def main_metric(self) -> str:
        """The metric that ranks the models."""
        return self.main_metrics[0]


PROTOCOLS = {
    "strong_generalization": Protocol(
        "Users never seen",
        "No model has seen the test users: each is known by four fifths of their likes, and the rest is to be found.",
        main_metrics=("ndcg@100", "recall@20", "recall@50", "mean_rank"),
        tuned_by="ndcg@100",
    ),
    "leave_one_out": Protocol(
        "One like held out",
        "Every user has been seen, but for one like of theirs, which is to be found.",
        main_metrics=("mean_rank", "mean_rank_midtie", "median_rank", "ndcg@100"),
        tuned_by="mean_rank",
    ),
    "next_events": Protocol(
        "What came next",
        "Models learn from what was there before a day; the likes of that day and after it are to be found.",
        main_metrics=("ndcg@100", "recall@20", "recall@50", "mean_rank"),
        tuned_by="ndcg@100",
    ),
    "given": Protocol(
        "The data set's own split",
        "The test file that the data set comes with is to be found.",
        main_metrics=("recall_of_all@20", "ndcg@20", "mean_rank"),
        tuned_by="ndcg@20",
    ),
}
ALL_EDGES = "all_edges"  # not a protocol: every curated edge, for the published model
# The metric that the published model is chosen by, on validation users.
VALIDATION_METRIC = f"validation_{PROTOCOLS['strong_generalization'].tuned_by}"


def main_metric_parameters() -> dict[str, list]:
    """Return the parameters `$protocols`, `$metrics` and `$places` of a query over main metrics.

    They are three parallel lists; a place counts from 0, the metric that ranks the models.
    """
    rows = [
        (name, metric, place)
        for name, protocol in PROTOCOLS.items()
        for place, metric in enumerate(protocol.main_metrics)
    ]
    return dict(zip(("protocols", "metrics", "places"), map(list, zip(*rows, strict=True)), strict=True))
