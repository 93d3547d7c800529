"""What people do by hand to what is published: look at it, go back to an earlier publication, publish another model."""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from oneclass.models.registry import MODELS
from oneclass.tasks import promotion_log
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import ALL_EDGES, VALIDATION_METRIC
from oneclass.tasks.publish import promotion
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.publish.stage import ChosenModel, Published, publish
from oneclass.tasks.split.stage import store_all_edges
from oneclass.tasks.stores import checksums, publications, published_model, runs, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.train import train

logger = logging.getLogger(__name__)

MAX_LISTED_DECISIONS = 10


@dataclass(frozen=True)
class EvaluatedRun:
    """What the latest evaluated run fitted and evaluated.

    Attributes:
        settings: the run's own, as `operations.runs` has them, and the model's as its fits had them.
        score, value, standard_error, users: of the model that is asked for, its best score on validation.
    """

    run_id: str
    settings: dict[str, Any]
    score: str
    value: float | None
    standard_error: float | None
    users: int


def format_status(home: Home) -> str:
    """The publication that stands, those that are kept, and the last decisions, as text."""
    stands, kept = publications.load_current(home), publications.list_publications(home)
    lines = [f"Kept publications of {home.dataset}, the newest first:"]
    for facts in kept:
        mark = "*" if facts["run_id"] == stands.get("run_id") else " "
        lines.append(f"{mark} {facts['run_id']}  {_describe_publication(facts)}")
    lines += ["(* is published)"] if kept else ["  none"]
    lines += ["", "The last decisions:"]
    with warehouse.open_warehouse(home, read_only=True) as connection:
        found = promotion_log.load_decisions(connection, limit=MAX_LISTED_DECISIONS)
    lines += [f"  {one.decided_at:%Y-%m-%d %H:%M} UTC, run {one.run_id}: {one.sentence}" for one in found] or ["  none"]
    return "\n".join(lines)


def roll_back(home: Home, run_id: str, to: str | None = None) -> str:
    """Point `published` to an earlier publication, whose bytes are as they were, and note the decision.

    Args:
        run_id: of this act, in `operations.runs`.
        to: the run whose publication is to stand; by default the one that stood before the one that stands.

    Returns:
        The run whose publication stands now.

    Raises:
        InputError: there is no such publication.
        Damaged: a file of it is not what was published.
    """
    stands = publications.load_current(home)
    kept = {facts["run_id"]: facts for facts in publications.list_publications(home)}
    to = to or stands.get("before")
    if to is None or to not in kept:
        which = f"--rollback {to}: that publication is not kept" if to else "--rollback: no publication stood before"
        raise InputError(f"{which}. Kept are: {', '.join(kept) or 'none'}.")
    if to == stands.get("run_id"):
        raise InputError(f"--rollback {to}: is what is published.")
    folder = home.publications / to
    checksums.load_checked_facts(folder, published_model.MANIFEST_FILE)
    now, then = (_describe_publication(facts) for facts in (stands, kept[to]))
    reason = f"by hand: rolled back from run {stands.get('run_id')} to run {to}"
    decided = datetime.now(UTC).replace(tzinfo=None)
    decision = promotion_log.Decision(run_id, decided, now, then, None, None, None, 0.0, True, reason)
    parameters = {"recommendations_made": False, "top_n": 0}
    with warehouse.run_stage(home, run_id, "publish", parameters) as connection:
        connection.execute("delete from published.recommendations")
        path = publications.quote_path(folder / "recommendations.parquet")
        connection.execute(f"insert into published.recommendations by name from read_parquet('{path}')")
        promotion_log.record_decision(connection, decision)
    publications.switch_link(home, folder)
    logger.info("%s: %s", home.dataset, reason)
    return to


def promote_model(home: Home, run_id: str, model: str) -> Published:
    """Publish a model of the latest evaluated run, fitted on the edges as they are, whatever comparison and gates say.

    Args:
        run_id: of this act, in `operations.runs`.

    Raises:
        InputError: no run has been evaluated, or the latest did not have the model.
    """
    evaluated = _latest_evaluated(home, model)
    settings = MODELS[model].Settings.from_saved(evaluated.settings["models"][model])
    matrices_digest, seed = store_all_edges(home, order=settings.reads_order), evaluated.settings["seed"]
    fit = train(
        home,
        run_id,
        protocol=ALL_EDGES,
        matrices_digest=matrices_digest,
        model=model,
        settings=settings,
        seed=seed,
    )
    challenger = promotion.Candidate(
        model,
        evaluated.score,
        settings.model_dump(mode="json"),
        **promotion.observed_sizes(home),
        value=evaluated.value,
        standard_error=evaluated.standard_error,
        validation_users=evaluated.users,
    )
    note = f"by hand: {model} of run {evaluated.run_id}"
    judgement = promotion.Assessment(challenger, promotion.load_champion(home), 0.0, note=note, manual=True)
    publishing = PublishSettings(**evaluated.settings.get("publish", {}))
    return publish(
        home,
        run_id,
        publishing,
        choice=ChosenModel(model, evaluated.score),
        assessment=judgement,
        model_digest=fit.digest,
        matrices_digest=matrices_digest,
        evaluated=evaluated.run_id,
    )


def _latest_evaluated(home: Home, model: str) -> EvaluatedRun:
    with warehouse.open_warehouse(home, read_only=True) as connection:
        run_id = runs.find_latest_evaluated(connection)
        if run_id is None:
            raise InputError(
                f"--model {model}: no run of {home.dataset} has been evaluated yet. Run flows.backfill first."
            )
        found = warehouse.select(connection, "promotion/of_model", run_id=run_id, model=model, metric=VALIDATION_METRIC)
    row = found.row(0, named=True)
    settings = json.loads(row["settings"])
    if model not in settings["models"]:
        raise InputError(f"--model {model}: run {run_id} did not fit it. It has {', '.join(settings['models'])}.")
    if row["settled"]:
        settings["models"][model] = json.loads(row["settled"])
    score = row["score"] or MODELS[model].score_names[0]
    return EvaluatedRun(run_id, settings, score, row["value"], row["standard_error"], row["users"] or 0)


def _describe_publication(facts: dict[str, Any]) -> str:
    made_of = facts.get("recommended")
    return f"{made_of['model']}/{made_of['score']}" if made_of else "unknown"
