"""Contracts of the warehouse's tables, one declarative file a table, checked at the end of every stage.

What must hold of a table is in `<schema>.<table>.yaml`; `check` asks it of the rows of an open transaction.
"""

from oneclass.data_contracts.checks import check
from oneclass.data_contracts.contracts import STAGES, for_stage
from oneclass.data_contracts.results import ContractBroken, RuleResult, raise_if_broken

__all__ = ["STAGES", "ContractBroken", "RuleResult", "check", "for_stage", "raise_if_broken"]
