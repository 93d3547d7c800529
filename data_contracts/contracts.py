"""What a contract file may say, and how the files are read."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

# In the order that they run.
Stage = Literal["ingest", "binarize", "split", "diagnose", "tune", "train", "evaluate", "publish"]
STAGES: tuple[Stage, ...] = get_args(Stage)
UNEXPECTED_ROWS = "unexpected_rows"
COLUMNS = "columns"  # the rule that every contract has: its columns are as declared

Severity = Literal["error", "warning"]


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(_Declared):
    """A column, as `describe` must show it."""

    type: str = Field(description="DuckDB's name of the type.")
    meaning: str = Field(description="What a value says, in a sentence.")
    nullable: bool = Field(default=False, description="Whether the table lets the column be null.")

    @property
    def declared(self) -> str:
        """Type and constraint, such as `BIGINT not null`."""
        return self.type if self.nullable else f"{self.type} not null"


class Rule(_Declared):
    """One thing that must hold: an expectation of Great Expectations, or a condition or query that finds no row."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    type: str = Field(
        description="`unexpected_rows`, or an expectation type such as `expect_column_values_to_be_in_set`."
    )
    kwargs: dict[str, Any] = Field(
        default={}, description='Of the expectation type; `{"$PARAMETER": name}` for a stage\'s value.'
    )
    where: str | None = Field(
        default=None,
        description="Of `unexpected_rows`: a condition that no row meets. All those of a table take one look at it.",
    )
    query: str | None = Field(
        default=None,
        description="Of `unexpected_rows`: `{batch}` is the table, `{name}` a stage's value or a relation.",
    )
    severity: Severity = "error"
    description: str = Field(description="The rule in a sentence, as a person who broke it will read it.")

    @model_validator(mode="after")
    def _where_or_query_or_kwargs(self) -> "Rule":
        texts = [text for text in (self.where, self.query) if text is not None]
        if len(texts) != (self.type == UNEXPECTED_ROWS) or (texts and self.kwargs):
            raise ValueError(
                f"rule {self.name}: either `where` or `query` belongs to the type unexpected_rows, `kwargs` to all others"
            )
        return self


class Contract(_Declared):
    """Everything that must hold of one table once a stage has ended."""

    table: str = Field(pattern=r"^([a-z_]+\.)?[a-z_]+$", description="schema.table, or the name of a temporary table.")
    stage: Stage
    row: str = Field(description="What one row is.")
    only: str | None = Field(default=None, description="Condition on the rows that are checked; by default all are.")
    relations: dict[str, str] = Field(
        default={}, description="Queries by name; `{name}` in a rule's query stands for one."
    )
    defaults: dict[str, Any] = Field(default={}, description="Values of parameters, where the stage gives none.")
    columns: dict[str, Column]
    rules: list[Rule] = []

    @model_validator(mode="after")
    def _names_differ(self) -> "Contract":
        names = [rule.name for rule in self.rules]
        if twice := {name for name in names if names.count(name) > 1} | ({COLUMNS} & set(names)):
            raise ValueError(f"names of rules that are taken: {sorted(twice)}")
        return self

    def text_of(self, rule: Rule) -> str:
        """The rule's condition or query with the contract's relations in their places; empty where it has neither."""
        text = rule.where or rule.query or ""
        for name, query in self.relations.items():
            text = text.replace("{" + name + "}", f"({query})")
        return text

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values that the contract's parameters have.

        Raises:
            ValueError: a parameter is neither given nor has a default.
        """
        arguments = [argument for rule in self.rules for argument in rule.kwargs.values()]
        asked = {one["$PARAMETER"] for one in arguments if isinstance(one, dict) and "$PARAMETER" in one}
        asked |= placeholders(self.only or "").union(*(placeholders(self.text_of(rule)) for rule in self.rules))
        values = {**self.defaults, **given}
        if missing := sorted(asked - set(values)):
            raise ValueError(f"data_contracts/{self.table}.yaml: stage {self.stage} was to give values of {missing}")
        return values


def placeholders(text: str) -> set[str]:
    """Names between single braces, but for `{batch}`."""
    return set(re.findall(r"(?<!\{)\{(\w+)\}", text)) - {"batch"}


def parse(text: str, source: str) -> Contract:
    """A contract from the text of its YAML file.

    Raises:
        ValueError: the text is not a contract; the message begins with `source` and names the key.
    """
    try:
        return Contract.model_validate(yaml.safe_load(text))
    except (yaml.YAMLError, ValidationError) as error:
        raise ValueError(f"{source}: {error}") from error


@cache
def load() -> tuple[Contract, ...]:
    """Every contract of this folder, in the order of the stages, then of the files."""
    found = [
        parse(file.read_text(encoding="utf-8"), file.name)
        for file in sorted(files("oneclass.data_contracts").iterdir(), key=lambda file: file.name)
        if file.name.endswith(".yaml")
    ]
    return tuple(sorted(found, key=lambda contract: STAGES.index(contract.stage)))


def for_stage(stage: str) -> list[Contract]:
    """The contracts that close a stage."""
    return [contract for contract in load() if contract.stage == stage]
