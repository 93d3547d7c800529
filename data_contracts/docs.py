"""Great Expectations' Data Docs of the contracts, built on request and readable offline.

Each table has a page with a section for its rules and one for every column: the rules in words, shares of rows, and
sample rows that break them. The sections are Great Expectations' own. Its page around them would load styles and
scripts from public hosts, so this module writes the page. `operations.contract_results` has the results of every run.
"""

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from oneclass.data_contracts.contracts import Contract, load
from oneclass.data_contracts.session import rule_name, session

if TYPE_CHECKING:
    import great_expectations as gx
    from great_expectations.core import ExpectationSuiteValidationResult

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } td, th { border: 1px solid #bbb; padding: .3rem .5rem; text-align:
left; }
.ge-section { margin-top: 2rem; } .text-danger { color: #b00020; } .text-success { color: #1b6e3c; }
.collapse, .show-scrollbars { overflow-x: auto; } i.fas.text-success::before { content: "✓"; }
i.fas.text-danger::before { content: "✗"; } i.fas.text-warning::before { content: "!"; }
"""


def build(connection: duckdb.DuckDBPyConnection, parameters: Mapping[str, Mapping[str, Any]], folder: Path) -> Path:
    """Check every contract on the current warehouse and write Data Docs into `folder`.

    Contracts of temporary tables are skipped. A broken rule raises no error; the pages show it.

    Args:
        parameters: the values that each stage gives to its contracts, `run_id` included, by stage.

    Returns:
        The index page.

    Raises:
        ValueError: a contract needs a value that is not in `parameters`.
    """
    contracts = [contract for contract in load() if "." in contract.table]
    values = [contract.values(parameters[contract.stage]) for contract in contracts]
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with session(connection, private=True) as gx_session:
        definitions = gx_session.checkpoint(contracts, values).validation_definitions
        for contract, definition in zip(contracts, definitions, strict=True):
            results = _validate(contract, definition)
            page = f"{contract.table}.html"
            (folder / page).write_text(
                _render_page(contract.table, contract.row, _render_sections(results)), encoding="utf-8"
            )
            statistics = results.statistics
            rows.append(
                f'<tr><td>{contract.stage}</td><td><a href="{page}">{contract.table}</a></td>'
                f"<td>{statistics['successful_expectations']} of {statistics['evaluated_expectations']}</td>"
                f"<td>{html.escape(contract.row)}</td></tr>"
            )
    head = "<tr><th>stage</th><th>table</th><th>rules that hold</th><th>one row is</th></tr>"
    index = folder / "index.html"
    index.write_text(_render_page("Data contracts", "", [f"<table>{head}{''.join(rows)}</table>"]), encoding="utf-8")
    return index


def _validate(contract: Contract, definition: "gx.ValidationDefinition") -> "ExpectationSuiteValidationResult":
    """Validate a table's rules and count each column's nulls, so that each column has a section."""
    import great_expectations as gx

    suite = definition.suite
    for name, column in contract.columns.items():
        nulls = gx.expectations.ExpectColumnValuesToNotBeNull(
            column=name,
            mostly=0 if column.nullable else 1,
            description=f"{column.declared}: {column.meaning}",
            meta={"rule": f"{name} not null"},
        )
        suite.add_expectation(nulls)
    results = definition.run(result_format="SUMMARY")
    queries = {rule.name for rule in contract.rules if not rule.expect}
    batch = definition.batch_definition.get_batch()
    expectations = {rule_name(expectation): expectation for expectation in suite.expectations}
    for result in results.results:
        name = rule_name(result.expectation_config)
        if name in queries and not result.success and result.result:
            # Great Expectations renders no rows of this type, so store them under the keys that it renders.
            details = batch.validate(expectations[name], result_format="COMPLETE").result
            samples = [str(row) for row in details["details"]["unexpected_rows"]]
            result.result |= {"unexpected_count": details["observed_value"], "partial_unexpected_list": samples}
        # Values come from a log, and Great Expectations does not escape them.
        for key in {"partial_unexpected_list", "partial_unexpected_counts"} & set(result.result):
            result.result[key] = _escape(result.result[key])
    return results


def _escape(value: Any) -> Any:
    """Escape every text in a list of samples or of counts."""
    if isinstance(value, dict):
        return {name: _escape(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escape(item) for item in value]
    return html.escape(value, quote=False) if isinstance(value, str) else value


def _render_sections(results: "ExpectationSuiteValidationResult") -> list[str]:
    """Render the sections of a table's page as HTML."""
    from great_expectations.render.renderer import ValidationResultsPageRenderer
    from great_expectations.render.view.view import DefaultJinjaSectionView

    document: Any = ValidationResultsPageRenderer().render(results).to_json_dict()
    view = DefaultJinjaSectionView()
    sections = [
        view.render({"section": section, "section_loop": {"index": number}})
        for number, section in enumerate(document["sections"], 1)
    ]
    # The first section links to the index of a full Data Docs site, which does not exist here.
    return [re.sub(r'href="\.\.[^"]*"', "", section) for section in sections]


def _render_page(title: str, lead: str, parts: Sequence[str]) -> str:
    heading = f"<h1>{html.escape(title)}</h1><p>{html.escape(lead)}</p>"
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>'
    return f"<!DOCTYPE html><html><head>{head}</head><body>{heading}{''.join(parts)}</body></html>"
