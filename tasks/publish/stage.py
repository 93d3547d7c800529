"""Publish: recommendations in the logs' own ids, and the evaluation as Parquet, CSV and Markdown.

The files of a run lie in `publications/<run>/`, and `published` is a link to the newest complete one. The link changes
atomically, so that a reader sees either the old tables or the new.

A publication also has `published.duckdb`, the same tables and the data of explanations
(`tasks/stores/publications.py`), and `model/`, which recommends for any history (`tasks/stores/published_model.py`).
If the champion is kept (`tasks/publish/promotion.py`), neither the link nor the recommendations change.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from oneclass.tasks import leaderboard
from oneclass.tasks.attributes import Attributes, load_all_attributes
from oneclass.tasks.cluster import LOCAL, Executor
from oneclass.tasks.orchestration.notifications import run_program
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.promotion_log import Decision
from oneclass.tasks.publish import files, lists, promotion, recommend_all
from oneclass.tasks.publish.choice import ChosenModel
from oneclass.tasks.publish.recommend_all import RecommendationSpec
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend.companion import has_like
from oneclass.tasks.recommend.exploration import Exploration
from oneclass.tasks.recommend.like_calibration import UNCALIBRATED, Calibrations
from oneclass.tasks.rules.breaches import find_breaches
from oneclass.tasks.rules.lists import ListSelections, has_new_items, load_selections
from oneclass.tasks.rules.settings import NO_RULES, DeclaredRules
from oneclass.tasks.stores import checksums, publication_records, publications, published_model, runs, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.stage_cache import StageCache, stage_output_digest

logger = logging.getLogger(__name__)

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


def publish(
    home: Home,
    run_id: str,
    settings: PublishSettings,
    *,
    choice: ChosenModel | None = None,
    assessment: promotion.Assessment | None = None,
    model_digest: str | None = None,
    companion: tuple[str, str] | None = None,
    calibrations: Calibrations | None = None,
    matrices_digest: str | None = None,
    evaluated: str | None = None,
    seen_items: bool = False,
    declared: DeclaredRules = NO_RULES,
    seed: int = 0,
    executor: Executor = LOCAL,
) -> Published:
    """Fill `published.recommendations` by the chosen model, fitted on every curated edge, and write the files.

    If the assessment or a check of the recommendations rejects the choice, only the decision is recorded.

    Args:
        choice: None leaves the recommendations as they are (a run of `given` alone).
        assessment: of the choice; None promotes without a decision.
        model_digest: of its fit on every edge; not needed if the assessment already keeps the champion.
        companion: name and digest of the fit that says how sure and why; None if the chosen model does, or none.
        calibrations: of its `like`, or of the chosen model's.
        evaluated: the run whose evaluation is published; this one by default.
        seen_items: whether users are recommended items that they have already (`Splits.seen_items`).
        declared: the rules that lists obey, and the placements that have lists of their own.
        seed: of the draws of lists that explore.
    """
    run_ids = {"run_id": run_id, "evaluated": evaluated or run_id}
    folder = publications.create_publication(home, run_id)
    declared = declared.model_copy(update={"cold_share": settings.cold_share})
    spec = None
    if choice is not None and not (assessment and assessment.keeps_champion):
        assert model_digest is not None and matrices_digest is not None
        digests = model_digest, matrices_digest
        spec = _specify_recommendations(settings, choice, digests, companion, seed, exclude_seen=not seen_items)
        spec = spec._replace(calibrations=calibrations or UNCALIBRATED)
    parameters = {"recommendations_made": choice is not None, "top_n": settings.top_n, "seen_items": seen_items}
    parameters |= {"list_length": settings.list_length, "pinned": list(declared.rules.pinned)}
    made, facts = _Recommendations(assessment), {}
    with warehouse.run_stage(home, run_id, "publish", parameters) as connection:
        has_rules = parameters["has_rules"] = not declared.are_empty or has_new_items(connection)
        attributes = load_all_attributes(connection)
        publication_records.forget_publication(connection, run_id)
        if choice is not None:
            rules = (declared, attributes) if has_rules else None
            made = _recommend(connection, home, run_id, settings, spec, rules, assessment, executor)
            parameters["recommendations_made"] = made.are_promoted
            parameters["likes_given"] = made.are_promoted and (companion is not None or has_like(choice.model))
        checked = declared if has_rules and parameters["recommendations_made"] else None
        find_breaches(connection, checked, attributes, settings.top_n, seen_items=seen_items)
        count = warehouse.fetch_row(connection, "select count(*) from published.recommendations")[0]
        table = leaderboard.load_leaderboard(connection, run_ids["evaluated"])
        parameters["lists_made"] = made.are_promoted
        if made.are_promoted:
            facts = _write_files(connection, home, run_ids, folder, settings, spec, made, declared, attributes, table)
    for gap in made.gaps:
        runs.record_alarm(home, run_id, gap)
    if made.are_promoted:
        facts |= _describe_recommendations(home, made.assessment, seen_items, unchanged=choice is None)
        _activate(home, folder, facts, settings.keep)
        run_after(home, run_id, settings.after)
        by = f" by {choice.model}" if choice else ""
        logger.info("%s recommendations%s, tables in %s", f"{count:,}", by, home.published)
    else:
        checksums.remove_path(folder)
    return Published(home.published, home.report / "index.html", count, table, made.decision)


class _Recommendations(NamedTuple):
    """The recommendations of a run.

    Attributes:
        assessment: with what a check of the recommendations objected to.
        cache: the cache entry of the lists; None if the run made none.
        selections: how users get their lists; None without rules.
        gaps: what a person should know of the rules.
    """

    assessment: promotion.Assessment | None
    decision: Decision | None = None
    cache: StageCache | None = None
    selections: ListSelections | None = None
    gaps: Sequence[str] = ()

    @property
    def are_promoted(self) -> bool:
        return self.decision is None or self.decision.promoted


def _recommend(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    run_id: str,
    settings: PublishSettings,
    spec: RecommendationSpec | None,
    rules: tuple[DeclaredRules, Attributes] | None,
    assessment: promotion.Assessment | None,
    executor: Executor,
) -> _Recommendations:
    """Compute the recommendations, record whether they are promoted, and if so publish them in the warehouse.

    Args:
        spec: None if the assessment keeps the champion, which is recorded all the same.
    """
    cache = selections = None
    unchanged, gaps = False, list[str]()
    if spec is not None:
        if rules is not None:
            selections, gaps = load_selections(connection, *rules, spec.top_n, exclude_seen=spec.exclude_seen)
        cache, unchanged = recommend_all.store_recommendations(connection, home, spec, executor, selections)
        assessment = assessment and promotion.check_recommendations(connection, assessment, settings)
    decision = assessment and promotion.record_promotion(connection, run_id, assessment)
    made = _Recommendations(assessment, decision, cache, selections, gaps)
    if spec and cache and made.are_promoted and not unchanged:
        recommend_all.store_lists(connection, spec.exploration)
        cache.store({})
    return made


def _write_files(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    run_ids: dict[str, str],
    folder: Path,
    settings: PublishSettings,
    spec: RecommendationSpec | None,
    made: _Recommendations,
    declared: DeclaredRules,
    attributes: Attributes,
    table: list[leaderboard.LeaderboardRow],
) -> dict[str, Any]:
    """Write the tables and the model of a publication into its folder; returns facts for its manifest."""
    lists.store_lists(connection, settings, declared, attributes)
    titles = files.read_titles(home, settings.titles)
    sources = {
        "lists": made.cache and made.cache.made_from,
        "logs": stage_output_digest(connection, "binarize", "published"),
        "titles": checksums.compute_key(titles),
    }
    reusable = publications.find_reusable_publication(home, **sources)
    files.write_publication_tables(connection, home, run_ids, table, folder, reusable, titles)
    _write_model(connection, home, folder, spec, titles, attributes)
    if spec and spec.calibrations is not UNCALIBRATED:
        published_model.write_like_calibrations(folder, spec.calibrations.dump())
    if made.selections:
        sizes = declared.with_sizes(settings.top_n).model_dump(mode="json")
        published_model.write_rules(folder, sizes, made.selections[None].excluded)
    fits = warehouse.select(connection, "publish/fits", **run_ids).rows()
    return {"run_id": run_ids["run_id"], "fits": fits, "max_age": settings.max_age} | sources


def _activate(home: Home, folder: Path, facts: dict[str, Any], keep: int) -> None:
    """Make a publication the current one, and record it."""
    publications.activate_publication(home, folder, facts, keep)
    with warehouse.open_warehouse(home) as connection:
        publication_records.record_current(connection, home)


def run_after(home: Home, run_id: str, command: Sequence[str]) -> None:
    """Run the command of `publish.after` on what is published. If it fails, that is an alarm of the run and no more.

    Args:
        command: empty for none.
    """
    if not command:
        return
    folders = {"publication": home.published, "home": home.root}
    facts = {"dataset": home.dataset, **{name: str(folder.resolve()) for name, folder in folders.items()}}
    try:
        run_program(command, facts, timeout=AFTER_TIMEOUT_SECONDS)
    except (OSError, ValueError) as error:  # no such program, too slow, failed; or a name that no system call takes
        runs.record_alarm(home, run_id, f"publish.after: {command[0]} failed, and the publication stands: {error}")


def _specify_recommendations(
    settings: PublishSettings,
    choice: ChosenModel,
    digests: tuple[str, str],
    companion: tuple[str, str] | None,
    seed: int,
    *,
    exclude_seen: bool,
) -> RecommendationSpec:
    """Return what the recommendations are made of.

    Args:
        digests: of the model's fit, and of the matrices that it was fitted on.
    """
    beside = (choice.model, digests[0]) if companion is None and has_like(choice.model) else companion
    spec = RecommendationSpec(choice.model, choice.score, *digests, settings.top_n)
    exploration = _explore(settings, seed, has_likes=beside is not None)
    return spec._replace(exclude_seen=exclude_seen, companion=beside, exploration=exploration)


def _explore(settings: PublishSettings, seed: int, *, has_likes: bool) -> Exploration | None:
    """Return how tonight's lists explore; None if none do."""
    if settings.explore == "off":
        return None
    if not has_likes:
        logger.warning("publish.explore = %s: no list explores, since no model of the run has a like", settings.explore)
        return None
    return Exploration(settings.explore_share, (datetime.now(UTC).date() - date(1970, 1, 1)).days, seed)


def _write_model(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    folder: Path,
    spec: RecommendationSpec | None,
    titles: dict[str, str],
    attributes: Attributes,
) -> None:
    """Write the model that recommends; that of the current publication if this run made no recommendations."""
    if spec is None:
        published_model.copy_published_model(home.published.resolve(), folder)
        return
    recommends = {"model": spec.model, "score": spec.score, "digest": spec.digest}
    beside = None if spec.companion == (spec.model, spec.digest) else spec.companion
    files.write_publication_model(
        connection, home, folder, recommends, beside, spec.matrices_digest, titles, attributes
    )


def _describe_recommendations(
    home: Home, assessment: promotion.Assessment | None, seen_items: bool, *, unchanged: bool
) -> dict[str, Any]:
    """Return the configuration behind the recommendations, and whether they include seen items, for the manifest."""
    if unchanged:
        champion, seen = promotion.load_champion(home), published_model.seen_choice(publications.load_current(home))
    else:
        champion, seen = assessment and assessment.challenger, "include" if seen_items else "exclude"
    return {"recommended": asdict(champion) if champion else None, "seen": seen}


publish_task = stage_task(publish)
