"""Publish: recommendations in the logs' own ids, and the evaluation as Parquet, CSV and Markdown.

All that belongs to a publication is in one folder, `publications/<run>/`, made and checked once
(`tasks/stores/publications.py`); `published` is a link to the current one. If the champion is kept
(`tasks/publish/promotion.py`), only the decision is recorded.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

from oneclass.tasks import leaderboard
from oneclass.tasks.attributes import Attributes, load_all_attributes
from oneclass.tasks.cluster import LOCAL, Executor
from oneclass.tasks.orchestration.notifications import run_program
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.publish import files, promotion, recommend_all
from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.rules.lists import ListSelections, find_breaches, load_selections
from oneclass.tasks.stores import checksums, publications, published_model, runs, stages, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.publications import Decision

logger = logging.getLogger(__name__)

KEPT = 3  # publications that are kept whole, to roll back to; always the one before
AFTER_TIMEOUT_SECONDS = 1800  # until the command of `publish.after` is killed


@dataclass(frozen=True)
class Published:
    """The publication after a run.

    Attributes:
        decision: whether the run's recommendations were promoted; None if it made none.
    """

    folder: Path
    report: Path
    recommendations: int
    table: list[leaderboard.LeaderboardRow]
    decision: Decision | None = None


def publish(home: Home, run_id: str, plan: PublicationPlan, executor: Executor = LOCAL) -> Published:
    """Make the recommendations of a plan and publish them with the evaluation, unless a check refuses them.

    Raises:
        OneclassError: there is nothing to recommend, and no earlier publication that could stay.
        ContractBroken: a list is not as it must be; what was published stays.
    """
    folder = publications.create_publication(home, run_id)
    parameters: dict[str, Any] = {"top_n": plan.settings.top_n, "list_length": files.LIST_LENGTH}
    parameters |= {"pinned": list(plan.rules.rules.pinned), "recommendations_made": False, "lists_made": False}
    parameters["seen_items"] = plan.lists is not None and not plan.lists.exclude_seen
    parameters["explored_share"] = plan.lists and plan.lists.exploration and plan.lists.exploration.share
    with stages.run_stage(home, run_id, "publish", parameters) as connection:
        attributes = load_all_attributes(connection)
        has_new_items = warehouse.fetch_row(connection, "select count(*) > 0 from indexed.new_items")[0]
        has_rules = parameters["has_rules"] = has_new_items or not plan.declared.are_empty
        of_rules = attributes if has_rules else None
        decision, selections, gaps = _make_lists(connection, home, run_id, plan, of_rules, executor)
        table = leaderboard.load_leaderboard(connection, plan.evaluated or run_id)
        if promoted := decision is None or decision.promoted:
            parameters |= {"lists_made": True, "recommendations_made": plan.lists is not None}
            if plan.lists is not None:
                sampled = plan.lists.calibrations.sampled
                parameters["likes_given"] = plan.lists.companion is not None and sampled.holds
                parameters["like_sd_given"] = sampled.spread is not None
            files.store_lists(connection, plan.rules, attributes)
            files.write_publication(connection, home, folder, plan, table, attributes, selections)
            publications.record_new(connection, home, folder, _describe(connection, home, run_id, plan))
        checked = plan.rules if has_rules and parameters["recommendations_made"] else None
        find_breaches(connection, checked, attributes, plan.settings.top_n)
        count = warehouse.fetch_row(connection, "select count(*) from published.recommendations")[0]
    for gap in gaps:
        runs.record_alarm(home, run_id, gap)
    if promoted:
        _show(home, KEPT)
        run_after(home, run_id, plan.settings.after)
        by = f" by {plan.lists.model}" if plan.lists else ""
        logger.info("%s recommendations%s, tables in %s", f"{count:,}", by, home.published)
    else:
        checksums.remove_path(folder)
    return Published(home.published, home.report / "index.html", count, table, decision)


def _make_lists(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    run_id: str,
    plan: PublicationPlan,
    attributes: Attributes | None,
    executor: Executor,
) -> tuple[Decision | None, ListSelections, Sequence[str]]:
    """Compute the recommendations, record whether they are promoted, and if so fill the tables of lists.

    Args:
        attributes: None if lists obey no rules.

    Returns:
        The decision, None without an assessment; how users get their lists; what a person should know of the rules.
    """
    assessment, margin = plan.assessment, plan.settings.margin
    if plan.lists is None:
        return assessment and promotion.record_promotion(connection, run_id, assessment, margin), {}, ()
    spec, selections, gaps = plan.lists, ListSelections(), list[str]()
    if attributes is not None:
        of_lists = {"exclude_seen": spec.exclude_seen}
        selections, gaps = load_selections(connection, plan.rules, attributes, spec.top_n, **of_lists)
    cache, unchanged = recommend_all.store_recommendations(connection, home, spec, executor, selections)
    assessment = promotion.check_recommendations(connection, assessment)
    decision = assessment and promotion.record_promotion(connection, run_id, assessment, margin)
    if not unchanged and (decision is None or decision.promoted):
        recommend_all.store_lists(connection, spec.exploration)
        cache.store({})
    return decision, selections, gaps


def _describe(connection: duckdb.DuckDBPyConnection, home: Home, run_id: str, plan: PublicationPlan) -> dict[str, Any]:
    """Return what the manifest says of a publication: the fits it may load, and the configuration behind its lists."""
    # one row per fit of the run and of the run whose evaluation is published
    of_runs = "select distinct model, digest from operations.model_fits where run_id in $runs order by all"
    fits = warehouse.query(connection, of_runs, runs=[run_id, plan.evaluated or run_id]).rows()
    if plan.lists is None:
        current = publications.load_recorded_facts(connection)
        made_of = {"recommended": current.get("recommended"), "seen": published_model.seen_choice(current)}
    else:
        recommended = asdict(plan.assessment.challenger) if plan.assessment else None
        made_of = {"recommended": recommended, "seen": "exclude" if plan.lists.exclude_seen else "include"}
    return {"fits": fits, "max_age": plan.settings.max_age, **made_of}


def _show(home: Home, keep: int) -> None:
    """Point readers to what was recorded, and delete all publications but it, the one before, and the latest `keep`."""
    with warehouse.open_warehouse(home) as connection:
        publications.show_current(connection, home)
        stored, current = publications.list_publications(home), publications.load_recorded_facts(connection)
        before = [current["before"]] if current["before"] else []
        retained = {current["run_id"], *before, *(facts["run_id"] for facts in stored[:keep])}
        publications.remove_others(connection, home, retained)


def run_after(home: Home, run_id: str, command: Sequence[str]) -> None:
    """Run the command of `publish.after`, if any, on what is published. If it fails, that is an alarm and no more."""
    if not command:
        return
    folders = {"publication": home.published, "home": home.root}
    facts = {"dataset": home.dataset, **{name: str(folder.resolve()) for name, folder in folders.items()}}
    try:
        run_program(command, facts, timeout=AFTER_TIMEOUT_SECONDS)
    except (OSError, ValueError) as error:  # no such program, too slow, failed; or a name that no system call takes
        runs.record_alarm(home, run_id, f"publish.after: {command[0]} failed, and the publication stands: {error}")


publish_task = stage_task(publish)
