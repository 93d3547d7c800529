"""What a run shows in the Prefect UI: contracts, the evaluation table, a link to the report."""

import logging
import re

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

import sql
from tasks import warehouse
from tasks.home import Home

logger = logging.getLogger(__name__)


def contract_results(home: Home, run_id: str, stage: str) -> None:
    """A table of the rules that the stage was checked against; none where the stage never came so far.

    What it cannot show it logs: the stage is done, or has failed for a reason of its own.
    """
    if not home.warehouse.exists():
        return
    try:
        _show_contract_results(home, run_id, stage)
    except Exception as error:
        logger.warning("the contracts of %s cannot be shown in Prefect: %s", stage, error)


def _show_contract_results(home: Home, run_id: str, stage: str) -> None:
    with warehouse.connect(home, read_only=True) as connection:
        cursor = connection.execute(sql.statement("publish/contract_results"), {"run_id": run_id, "stage": stage})
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        if rows:
            broken = sum(not row["success"] for row in rows)
            description = f"Contracts of {stage}: {len(rows)} rules, {broken} not met."
            create_table_artifact(table=rows, key=_key(home, "contracts", stage), description=description)


def evaluation(home: Home, rows: list[dict], markdown: str) -> None:
    """The evaluation as a table, and as the Markdown that is published."""
    create_table_artifact(table=rows, key=_key(home, "evaluation"), description=f"Evaluation on {home.dataset}")
    create_markdown_artifact(markdown, key=_key(home, "summary"), description=f"Summary of {home.dataset}")


def report_link(home: Home) -> None:
    """A link to the report's page."""
    page = home.report / "index.html"
    create_link_artifact(page.resolve().as_uri(), link_text=f"Report on {home.dataset}", key=_key(home, "report"))


def _key(home: Home, *parts: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", "-".join([home.dataset, *parts]).lower()).strip("-")
