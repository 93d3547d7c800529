"""Build Great Expectations' expectation suites from contracts, for the check of a stage and for Data Docs."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from oneclass.data_contracts.contracts import COLUMNS, Contract, Rule, placeholders

if TYPE_CHECKING:
    import great_expectations as gx


def rows_query(contract: Contract, values: Mapping[str, Any]) -> str:
    """Build the query of the rows to check."""
    query = f"select * from {contract.table}"
    return f"{query} where {fill_in(contract.only, values)}" if contract.only else query


def build_suite(contract: Contract, values: Mapping[str, Any]) -> "gx.ExpectationSuite":
    """Build the suite of a contract: one expectation per rule, with the rule's name in its `meta`.

    Args:
        values: the values of the contract's parameters.

    Raises:
        ValueError: a rule has an unknown expectation type, or arguments that its type does not take.
    """
    import great_expectations as gx
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metadata_types import FailureSeverity

    suite = gx.ExpectationSuite(name=contract.table)
    for rule in [columns_rule(contract), *contract.rules]:
        try:
            # The suite's constructor drops unknown types, and its `add_expectation_configuration` keeps only the last
            # expectation of a type and column.
            expectation = ExpectationConfiguration(
                **_type_and_kwargs(contract, rule, values),
                meta={"rule": rule.name},
                description=rule.description,
                severity=FailureSeverity.CRITICAL if rule.severity == "error" else FailureSeverity.WARNING,
            )
            suite.expectations.append(expectation.to_domain_obj())
        except Exception as error:
            raise ValueError(f"data_contracts/{contract.table}.yaml: rule {rule.name}: {error}") from error
    return suite


def rule_name(expectation: Any) -> str:
    """Return the name of the rule that an expectation was built from."""
    return expectation.meta["rule"]


def columns_rule(contract: Contract) -> Rule:
    """Build the rule that the columns are as declared."""
    return Rule(
        name=COLUMNS,
        expect={"type": "table_columns_to_match_ordered_list", "column_list": list(contract.columns)},
        description="the table has the declared columns and no others, in this order, types and NOT NULL included",
    )


def _type_and_kwargs(contract: Contract, rule: Rule, values: Mapping[str, Any]) -> dict[str, Any]:
    if rule.expect is not None:
        arguments = dict(rule.expect)
        return {"type": f"expect_{arguments.pop('type')}", "kwargs": arguments}
    query = fill_in(contract.rule_sql(rule), values)
    if rule.where is not None:
        query = f"select * from {{batch}} where {query}"
    if "{batch}" not in query:
        # The expectation prints a warning if the query does not name the batch.
        query = f"with batch as not materialized (select * from {{batch}}) select * from ({query})"
    # The expectation gives `{batch}` an alias in a query without a join.
    query = query.replace("{batch}", "(select * from {batch})")
    return {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": query}}


def fill_in(text: str, values: Mapping[str, Any]) -> str:
    """Replace every `{name}` but `{batch}` by the SQL literal of its value."""
    for name in placeholders(text):
        text = text.replace("{" + name + "}", _literal(values[name]))
    return text


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return f"{value!r}::double" if isinstance(value, float) else str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, str | date | datetime):
        # Braces, colons and backslashes are special to Python's format and SQLAlchemy's text, which read the query.
        characters = (f"' || chr({ord(char)}) || '" if char in "{}:\\%'" else char for char in str(value))
        return "('" + "".join(characters) + "')"
    raise ValueError(
        f"a contract's parameter must be text, a number, a date, a boolean, None or a list of them, not {value!r}"
    )
