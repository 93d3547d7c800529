"""Default models that a run with long fits leaves out, since their search shows them far behind the best."""

from collections.abc import Collection
from dataclasses import dataclass

from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.tasks.capacity import record_left_out
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.auto import sample_edges

# CPU seconds of all fits of a run, up to which no model is left out for what its search found
MAX_FITS_SECONDS = 900.0
# CPU seconds of all fits of a run, up to which a model may cost more than all others together
MAX_COSTLY_SECONDS = 3_600.0
FAR_BEHIND_SHARE = 0.4  # of the best metric, below which the search of a model leaves it behind
MIN_COST_SHARE = 0.01  # of the fits of all models, below which leaving out one saves nothing
SEARCH_COSTS = """
select model, reached, seconds / trials, edges
from operations.model_settings
where run_id = ? and reached is not null
"""  # one row per model with a search, of this run or kept from an earlier one


@dataclass(frozen=True)
class SearchCost:
    """What the search of a model found, in this run or an earlier one, and what its trials took.

    Attributes:
        model: the model's name.
        reached: the metric of the best settings.
        trial_seconds: mean CPU seconds of a trial, which do not depend on what else the machine does.
        edges: training edges of the log, of which a trial has a sample.
        least_seconds: CPU seconds of a fit by the model's own estimate, if its cost grows faster than the log.
        samples_items: whether its trials are on a sample of the items, among which targets are found more easily than
            on one of the users: metrics are compared among models with samples of one kind.
    """

    model: str
    reached: float
    trial_seconds: float
    edges: int
    least_seconds: float = 0.0
    samples_items: bool = False

    @property
    def fit_seconds(self) -> float:
        """Estimate the CPU seconds of a fit on the whole log."""
        return max(self.least_seconds, self.trial_seconds * max(1.0, self.edges / sample_edges(self.edges)))


def find_models_far_behind(searches: Collection[SearchCost], fits: int) -> dict[str, str]:
    """Return the models that a run with long fits leaves out, each with the reason as a sentence's end.

    They are those whose metric is below FAR_BEHIND_SHARE of the best on a sample of the same kind, the longest fits
    first, until the fits of the others take MAX_FITS_SECONDS or no such model with MIN_COST_SHARE is left; and, down to
    MAX_COSTLY_SECONDS, those that are below the best and whose fits take longer than those of all others together.

    Args:
        fits: how many fits of each model the run makes.
    """
    seconds = {of.model: fits * of.fit_seconds for of in searches}
    reasons: dict[str, str] = {}
    costly = [of for of in searches if seconds[of.model] >= MIN_COST_SHARE * sum(seconds.values())]
    for of in sorted(costly, key=lambda of: -of.fit_seconds):
        left = sum(cost for model, cost in seconds.items() if model not in reasons)
        best = max((one for one in searches if one.samples_items == of.samples_items), key=lambda one: one.reached)
        is_far_behind = left > MAX_FITS_SECONDS and of.reached < FAR_BEHIND_SHARE * best.reached
        is_costly = left > MAX_COSTLY_SECONDS and 2 * seconds[of.model] > left and of.reached < best.reached
        if is_far_behind or is_costly:
            reasons[of.model] = (
                f"its fits take about {seconds[of.model] / 60:,.0f} of {sum(seconds.values()) / 60:,.0f} CPU minutes, "
                f"and its search reached {of.reached:.4f}, that of {best.model} {best.reached:.4f}"
            )
    return reasons


def drop_models_far_behind(
    home: Home, run_id: str, models: Collection[str], logs: Collection[LogSize], fits: int
) -> list[str]:
    """Return the default models of a run that its searches leave in the race, and record the others.

    Args:
        logs: the sizes of the run's training matrices.
        fits: how many fits of each model the run makes.
    """
    with warehouse.open_warehouse(home, read_only=True) as connection:
        rows = connection.execute(SEARCH_COSTS, [run_id]).fetchall()
    costs = {
        name: max((MODELS[name].estimate_cost(MODELS[name].Settings(), log) for log in logs), key=lambda of: of.seconds)
        for name in models
    }
    searches = [
        SearchCost(*row, least_seconds=0.0 if of.is_linear else of.seconds, samples_items=of.depends_on_items)
        for row in rows
        if (of := costs.get(row[0]))
    ]
    reasons = find_models_far_behind(searches, fits)
    if reasons:
        record_left_out(home, run_id, reasons, {})
    return [name for name in models if name not in reasons]
