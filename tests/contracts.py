"""A contract for import-linter that lists what may be imported; whatever is not listed is forbidden.

Its own contracts of kind `forbidden` name what is not allowed, so that a new module or a new dependency is allowed
until somebody thinks of it. In `pyproject.toml`:

    [tool.importlinter]
    contract_types = ["whitelist: tests.contracts.WhitelistContract"]

    [[tool.importlinter.contracts]]
    type = "whitelist"
    source_modules = ["inspector"]           # with everything in them
    allowed_modules = ["engine.protocol"]     # likewise; the sources and the standard library always are

Direct imports are checked, also those inside functions; those under `TYPE_CHECKING` are not, where the configuration
says `exclude_type_checking_imports`. What an allowed module imports in turn is for a contract of its own. A name that
no module has is a mistake, so that no line outlives its module.
"""

from __future__ import annotations

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.domain.helpers import module_expressions_to_modules


class WhitelistContract(Contract):
    """The source modules import the allowed modules, each other and the standard library, and nothing else."""

    type_name = "whitelist"

    source_modules = fields.SetField(subfield=fields.ModuleExpressionField())
    allowed_modules = fields.SetField(subfield=fields.ModuleExpressionField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect the imports that are not on the list."""
        sources = self._names(graph, self.source_modules)
        allowed = sources | self._names(graph, self.allowed_modules) | sys.stdlib_module_names
        broken = [
            (importer, imported)
            for importer in sorted(sources)
            for imported in sorted(graph.find_modules_directly_imported_by(importer) - allowed)
        ]
        places = [
            f"{importer} -> {imported} (l.{detail['line_number']})"
            for importer, imported in broken
            for detail in graph.get_import_details(importer=importer, imported=imported)
        ]
        return ContractCheck(kept=not broken, metadata={"places": places})

    def _names(self, graph: ImportGraph, expressions: object) -> set[str]:
        """The names of modules and of everything in them."""
        modules = module_expressions_to_modules(graph, expressions, raise_if_unmatched=True)  # type: ignore[arg-type]
        inner = {name for each in modules if not graph.is_module_squashed(each.name)
                 for name in graph.find_descendants(each.name)}  # fmt: skip
        return inner | {each.name for each in modules}

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each import that is not on the list, and where it is."""
        for place in check.metadata["places"]:
            output.print_error(f"not on the list: {place}", bold=False)
