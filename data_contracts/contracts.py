"""The schema of the contract files, and their reader."""

import hashlib
import re
import sys
from collections.abc import Mapping
from datetime import date, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from oneclass import sql

# In the order that they run.
Stage = Literal["ingest", "binarize", "split", "diagnose", "tune", "train", "evaluate", "publish"]
STAGES: tuple[Stage, ...] = get_args(Stage)
MAX = sys.float_info.max
COLUMNS = "columns"  # the rule of every contract that its columns are as declared

Severity = Literal["error", "warning"]


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(_Declared):
    """A column, as DuckDB's `describe` must show it."""

    type: str = Field(description="DuckDB's name of the type.")
    meaning: str = Field(description="The meaning of a value, in a sentence.")
    nullable: bool = Field(default=False, description="Whether the column may be null.")
    one_of: list[str] | None = Field(default=None, description="The values that it may have.")
    least: float | None = Field(default=None, description="The lowest value; a DOUBLE with a bound is finite.")
    above: float | None = Field(default=None, description="A value that all are above.")
    most: float | None = Field(default=None, description="The highest value.")
    finite: bool = Field(default=False, description="Whether a DOUBLE without a bound must be finite.")
    clause: str = Field(default="", description="What else its definition says in SQL, such as a default.")

    @property
    def declared(self) -> str:
        """Type and constraint, such as `BIGINT not null`."""
        return self.type if self.nullable else f"{self.type} not null"


class Rule(_Declared):
    """One rule: an expectation of Great Expectations, or a condition or query that must find no row."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    expect: dict[str, Any] | None = Field(
        default=None,
        description="An expectation: its `type` without `expect_`, such as column_values_to_be_unique, and arguments.",
    )
    where: str | None = Field(default=None, description="A condition that no row meets.")
    query: str | None = Field(
        default=None,
        description="A query without rows: `{batch}` is the table, `{name}` a stage's value or a relation.",
    )
    severity: Severity = "error"
    description: str = Field(description="The rule in a sentence, shown when it is broken.")
    given: dict[str, Any] = Field(default={}, description="The stage's values under which `breaks` breaks the rule.")
    breaks: str | dict[str, Any] | list[str | dict[str, Any]] = Field(
        default=[],
        description=(
            "The smallest changes of the contract's `valid` rows that break the rule, one or more: values of the first "
            "row, or SQL in which `{batch}` is the table. Tests apply each."
        ),
    )

    @model_validator(mode="after")
    def _require_one_question(self) -> "Rule":
        if sum(one is not None for one in (self.expect, self.where, self.query)) != 1:
            raise ValueError(f"rule {self.name}: it has either `expect`, `where` or `query`")
        return self

    @property
    def breaches(self) -> list[str | dict[str, Any]]:
        """The changes of `breaks`, also if it is only one."""
        return self.breaks if isinstance(self.breaks, list) else [self.breaks]


def _rule_of_column(name: str, column: Column) -> Rule | None:
    """Build the rule of a column's values, if it has one, with values that break it."""
    if column.one_of is not None:
        expect = {"type": "column_values_to_be_in_set", "column": name, "value_set": column.one_of}
        description = f"`{name}` is one of {', '.join(column.one_of)}"
        return Rule(name=f"{name}_known", expect=expect, description=description, breaks={name: "unknown"})
    least = column.least if column.above is None else column.above
    if least is None and column.most is None and not column.finite:
        return None
    words = [f"at least {column.least:g}"] if column.least is not None else []
    words += [f"above {column.above:g}"] if column.above is not None else []
    words += [f"at most {column.most:g}"] if column.most is not None else []
    expect = {"type": "column_values_to_be_between", "column": name, "min_value": least, "max_value": column.most}
    breaks: list[str | dict[str, Any]] = []
    if column.type == "DOUBLE":
        words += ["finite"] if least is None or column.most is None else []
        # NaN is larger than every number in DuckDB.
        expect |= {bound: limit for bound, limit in (("min_value", -MAX), ("max_value", MAX)) if expect[bound] is None}
        breaks.append({name: "nan"})
    breaks += [{name: least - (column.above is None)}] if least is not None else []
    breaks += [{name: column.most + 1}] if column.most is not None else []
    expect |= {"strict_min": True} if column.above is not None else {}
    return Rule(name=f"{name}_in_range", expect=expect, description=f"`{name}` is {' and '.join(words)}", breaks=breaks)


class Contract(_Declared):
    """The columns and rules of one table at the end of a stage; the rules of columns come first."""

    table: str = Field(pattern=r"^([a-z_]+\.)?[a-z_]+$", description="schema.table, or the name of a temporary table.")
    stage: Stage
    row: str = Field(description="The meaning of one row.")
    only: str | None = Field(default=None, description="Condition of the rows that rules may read; by default all.")
    may_be_empty: bool | str = Field(
        default=False,
        description="Whether no rule is broken if there are no rows to check, or the condition under which none is.",
    )
    relations: dict[str, str] = Field(
        default={}, description="Queries by name; `{name}` in a rule's query stands for one."
    )
    defaults: dict[str, Any] = Field(default={}, description="Values of parameters that the stage does not give.")
    columns: dict[str, Column]
    valid: str = Field(default="", description="SQL that inserts rows that keep every rule, for tests.")
    rules: list[Rule] = []
    shared: dict[str, list[str]] = Field(default={}, description="Names of rules that hold as in other tables' files.")

    @model_validator(mode="before")
    @classmethod
    def _add_rules_of_columns(cls, given: dict[str, Any]) -> dict[str, Any]:
        columns = {name: Column.model_validate(column) for name, column in given.get("columns", {}).items()}
        rules = [rule for name, column in columns.items() if (rule := _rule_of_column(name, column))]
        return {**given, "columns": columns, "rules": [*rules, *given.get("rules", [])]}

    @model_validator(mode="after")
    def _require_unique_names(self) -> "Contract":
        names = [rule.name for rule in self.rules]
        if duplicates := {name for name in names if names.count(name) > 1} | ({COLUMNS} & set(names)):
            raise ValueError(f"names of rules that are taken: {sorted(duplicates)}")
        return self

    @property
    def definition(self) -> str:
        """The SQL that makes the table where it is absent."""
        columns = (f"    {name} {column.declared} {column.clause}".rstrip() for name, column in self.columns.items())
        head = f"-- {self.table}: one row is {self.row}\ncreate schema if not exists {self.table.partition('.')[0]};\n"
        return f"{head}create table if not exists {self.table} (\n" + ",\n".join(columns) + "\n)"

    def rule_sql(self, rule: Rule) -> str:
        """Return the rule's condition or query with the contract's relations inserted; empty if it has neither."""
        text = rule.where or rule.query or ""
        for name, query in self.relations.items():
            text = text.replace("{" + name + "}", f"({query})")
        return text

    def values(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the parameters that the contract uses, defaults included.

        Raises:
            ValueError: a parameter has neither a value nor a default.
        """
        texts = [self.only or "", str(self.may_be_empty), *map(self.rule_sql, self.rules)]
        names = set().union(*map(placeholders, texts))
        values = {**self.defaults, **parameters}
        if missing := sorted(names - set(values)):
            raise ValueError(f"data_contracts/{self.table}.yaml: stage {self.stage} must give values of {missing}")
        return {name: values[name] for name in sorted(names)}


def placeholders(text: str) -> set[str]:
    """Return the names between single braces, except `{batch}`."""
    return set(re.findall(r"(?<!\{)\{(\w+)\}", text)) - {"batch"}


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


def rows_query(contract: Contract, values: Mapping[str, Any]) -> str:
    """Build the query of the rows to check."""
    query = f"select * from {contract.table}"
    return f"{query} where {fill_in(contract.only, values)}" if contract.only else query


# libyaml's reads the contracts in an eighth of the time.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(text: str, source: str) -> Contract:
    """Parse a contract from the text of its YAML file.

    Raises:
        ValueError: the text is not a valid contract; the message begins with `source` and names the key.
    """
    try:
        return Contract.model_validate(yaml.load(text, Loader=_Loader))
    except (yaml.YAMLError, ValidationError) as error:
        raise ValueError(f"{source}: {error}") from error


@cache
def load() -> tuple[Contract, ...]:
    """Load every contract of this folder, in the order of the stages, then of the files."""
    contracts = [
        parse(file.read_text(encoding="utf-8"), file.name)
        for file in sorted(files("oneclass.data_contracts").iterdir(), key=lambda file: file.name)
        if file.name.endswith(".yaml")
    ]
    rules = {(contract.table, rule.name): rule for contract in contracts for rule in contract.rules}
    for contract in contracts:
        contract.rules.extend(rules[table, name] for table, names in contract.shared.items() for name in names)
    return tuple(sorted(contracts, key=lambda contract: STAGES.index(contract.stage)))


def for_stage(stage: str) -> list[Contract]:
    """Return the contracts that close a stage."""
    return [contract for contract in load() if contract.stage == stage]


@cache
def schema() -> list[str]:
    """Return the statements of the warehouse's tables and views, each made only where absent or as another view."""
    tables = [contract.definition for contract in load() if "." in contract.table]
    protocols = [contract.table.partition(".")[2] for contract in load() if "role" in contract.columns]
    views = [sql.statement("schema/splits", protocol=protocol) for protocol in protocols]
    return [*tables, *(text for name, text in sql.statements("schema").items() if name != "splits"), *views]


def schema_digest() -> str:
    """Return a digest of `schema`: with another one a warehouse may lack a table, or have an older view."""
    return hashlib.sha256("\0".join(schema()).encode()).hexdigest()
