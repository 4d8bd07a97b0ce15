"""What ``flopwatch init`` finds in somebody else's repository, and what it writes there."""

from flopwatch.scaffold.files import Action, PlannedFile, write_files
from flopwatch.scaffold.plan import Scaffold, plan_scaffold

__all__ = ["Action", "PlannedFile", "Scaffold", "plan_scaffold", "write_files"]
