"""Contracts of the warehouse's tables, one declarative file per table, checked at the end of every stage.

`<schema>.<table>.yaml` declares a table's columns and rules; `check` checks them on the rows of an open transaction.
"""

from oneclass.data_contracts.checks import ContractBroken, RuleResult, check, raise_if_broken
from oneclass.data_contracts.contracts import STAGES, for_stage

__all__ = ["STAGES", "ContractBroken", "RuleResult", "check", "for_stage", "raise_if_broken"]
