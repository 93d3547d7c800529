"""The results of a check, and the error that stops a run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

MAX_SHOWN_SAMPLES = 5


@dataclass(frozen=True)
class RuleResult:
    """The result of one rule.

    Attributes:
        contract: the table, `schema.table`.
        rule: the rule's name in the contract's file.
        observed: the observed value or number of rows, in words; None if unknown.
        samples: some of the rows, or values, that break the rule.
        description: the rule in a sentence.
    """

    contract: str
    rule: str
    severity: Literal["error", "warning"]
    success: bool
    observed: str | None
    samples: list[Any] = field(default_factory=list)
    description: str = ""


class ContractBroken(Exception):
    """A rule of severity `error` does not hold. The message names it, shows rows, and says what to do.

    Args:
        explanation: what the stage knows of the cause; the message begins with it.
    """

    exit_status = 1

    def __init__(self, stage: str, broken: Sequence[RuleResult], explanation: str = "") -> None:
        self.stage = stage
        self.broken = list(broken)
        described = [_describe(stage, result) for result in broken]
        super().__init__("\n".join([*([explanation, ""] if explanation else []), *described, _advice(stage, broken)]))


def raise_if_broken(stage: str, results: Sequence[RuleResult]) -> None:
    """Raise an error if a rule of severity `error` does not hold; a broken `warning` is only recorded.

    Raises:
        ContractBroken: with all broken rules.
    """
    broken = [result for result in results if not result.success and result.severity == "error"]
    if broken:
        raise ContractBroken(stage, broken)


def _describe(stage: str, result: RuleResult) -> str:
    lines = [f"{stage}: the contract of {result.contract} is broken: {result.rule}: {result.description}"]
    if result.observed:
        lines.append(f"  found: {result.observed}")
    lines += [f"  sample: {_format_row(sample)}" for sample in result.samples[:MAX_SHOWN_SAMPLES]]
    return "\n".join(lines)


def _format_row(sample: Any) -> str:
    if isinstance(sample, dict):
        return ", ".join(f"{name} = {value!r}" for name, value in sample.items())
    return repr(sample)


def _advice(stage: str, broken: Sequence[RuleResult]) -> str:
    tables = ", ".join(f"data_contracts/{table}.yaml" for table in dict.fromkeys(r.contract for r in broken))
    return (
        f"The stage {stage} was rolled back; the warehouse and the publication are unchanged. "
        f"Correct the log or the settings that the rows come from and run again; "
        f"the rules and their reasons are in {tables}."
    )
