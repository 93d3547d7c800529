"""Manual publication: show the status, roll back to an earlier publication, publish another model."""

import json
from datetime import UTC, date, datetime
from typing import Any

from oneclass.models.model_files import select_allowed, upgrade_settings
from oneclass.models.registry import MODELS
from oneclass.tasks import datasets
from oneclass.tasks.binarize.aggregate import LikeSelection
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import ALL_EDGES, VALIDATION_METRIC
from oneclass.tasks.publish import gates, promotion
from oneclass.tasks.publish.plan import PublicationPlan, RecommendationSpec, specify_recommendations
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.publish.stage import Published, publish, run_after
from oneclass.tasks.split.stage import store_all_edges
from oneclass.tasks.stores import publications, runs, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.publications import BY_HAND
from oneclass.tasks.train import FitPlan, collect_fits, record_fits, submit_fits

MAX_LISTED_DECISIONS = 10


def format_status(home: Home) -> str:
    """Format the current publication, the stored ones, and the last decisions."""
    current, stored = publications.load_current(home), publications.list_publications(home)
    lines = [f"Kept publications of {home.dataset}, the newest first (* is published):"]
    for facts in stored:
        mark = "*" if facts["run_id"] == current.get("run_id") else " "
        lines.append(f"{mark} {facts['run_id']}  {_describe_publication(facts)}")
    lines += ["", "The last decisions:"]
    with warehouse.open_warehouse(home, read_only=True) as connection:
        decisions = publications.load_decisions(connection, limit=MAX_LISTED_DECISIONS)
    lines += [f"  {one.decided_at:%Y-%m-%d %H:%M} UTC, run {one.run_id}: {one.sentence}" for one in decisions]
    return "\n".join(lines)


def roll_back(home: Home, run_id: str, to: str | None = None) -> str:
    """Activate an earlier publication, byte for byte, record the decision, and return the run that made it.

    Args:
        to: the run whose publication to activate; by default the one before the current one.

    Raises:
        InputError: there is no such publication.
        DamagedFile: a file of it differs from what was published.
    """
    current = publications.load_current(home)
    stored = {facts["run_id"]: facts for facts in publications.list_publications(home)}
    to = to or current.get("before")
    if to is None or to not in stored:
        which = f"the publication of run {to}" if to else "an earlier publication"
        raise InputError(f"--rollback: {which} is not kept. Kept are: {', '.join(stored) or 'none'}.")
    if to == current.get("run_id"):
        raise InputError(f"--rollback {to}: is already published.")
    now, then = (_describe_publication(facts) for facts in (current, stored[to]))
    reason = f"{BY_HAND}rolled back from run {current.get('run_id')} to run {to}"
    decided = datetime.now(UTC).replace(tzinfo=None)
    decision = publications.Decision(run_id, decided, now, then, None, None, None, 0.0, True, reason)
    with warehouse.open_warehouse(home) as connection:
        connection.begin()
        publications.record_earlier(connection, home, to)
        publications.record_decision(connection, decision)
        connection.commit()
        publications.show_current(connection, home)
    run_after(home, run_id, _load_publish_settings(home).after)
    return to


def promote_model(home: Home, run_id: str, model: str) -> Published:
    """Publish a model of the latest evaluated run, fitted on the current edges, overriding comparison and gates.

    Raises:
        InputError: no run has been evaluated, or the latest did not fit the model.
    """
    evaluated, of_model = _load_evaluated(home, model)
    of_run = json.loads(of_model["settings"])
    saved = json.loads(of_model["settled"]) if of_model["settled"] else of_run["models"][model]
    settings = upgrade_settings(MODELS[model].Settings, saved)
    since, until = (of_run.get(name) and date.fromisoformat(of_run[name]) for name in ("since", "until"))
    likes = LikeSelection(upgrade_settings(BinarizeSettings, of_run.get("binarize", {})), since, until)
    matrices = store_all_edges(home, order=settings.reads_order, timed=likes if settings.reads_times else None)
    seed = of_run["seed"]
    plan = FitPlan(model, {ALL_EDGES: settings}, {ALL_EDGES: matrices}, seed)
    fit = collect_fits(model, submit_fits(home, plan))[ALL_EDGES]
    record_fits(home, run_id, {ALL_EDGES: {model: fit}})
    publishing = _load_publish_settings(home)
    declared = datasets.load_dataset(home.dataset, home.root, with_logs=True).declared_rules
    seen, score = of_run.get("seen_items", "exclude"), of_model["score"] or MODELS[model].score_names[0]
    challenger = promotion.Candidate(
        model,
        score,
        settings.model_dump(mode="json"),
        **promotion.observed_sizes(home),
        value=of_model["value"],
        standard_error=of_model["standard_error"],
        validation_users=of_model["users"] or 0,
        protocol=of_model["protocol"],
        made_with=gates.describe_settings(
            of_run.get("binarize", {}), of_run.get("split", {}), seen, declared.rules, publishing.cold_share
        ),
    )
    note = f"{BY_HAND}{model} of run {evaluated}"
    lists = RecommendationSpec(model, score, fit.digest, matrices, publishing.top_n, exclude_seen=seen != "include")
    plan = PublicationPlan(
        settings=publishing,
        lists=specify_recommendations(publishing, lists, seed=seed),
        assessment=promotion.Assessment(challenger, promotion.load_champion(home), note=note, manual=True),
        declared=declared,
        evaluated=evaluated,
    )
    return publish(home, run_id, plan)


def _load_publish_settings(home: Home) -> PublishSettings:
    """Load the settings by which the latest evaluated run published; the defaults without one."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        stored = runs.list_evaluated_settings(connection)
    section = json.loads(stored[0]).get("publish", {}) if stored else {}
    return PublishSettings(**select_allowed(PublishSettings, section))


def _load_evaluated(home: Home, model: str) -> tuple[str, dict[str, Any]]:
    """Load the latest evaluated run, and what it has of a model: the row of `promotion/of_model`."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        run_id = runs.find_latest_evaluated(connection)
        if run_id is None:
            raise InputError(
                f"--model {model}: no run of {home.dataset} has been evaluated yet. Run flows.backfill first."
            )
        rows = warehouse.select(connection, "promotion/of_model", run_id=run_id, model=model, metric=VALIDATION_METRIC)
    row = rows.row(0, named=True)
    if model not in (models := json.loads(row["settings"])["models"]):
        raise InputError(f"--model {model}: run {run_id} did not fit it. It has {', '.join(models)}.")
    return run_id, row


def _describe_publication(facts: dict[str, Any]) -> str:
    recorded = facts.get("recommended")
    return f"{recorded['model']}/{recorded['score']}" if recorded else "unknown"
