"""Size of the import graphs of raytide and raytide_sandbox, and their circular imports.

Prints the number of modules and imports, and each circle: a set of modules, or of packages one or two levels below the root, in which
each imports all others directly or indirectly. The exit code is 1 if there are any. Imports inside of functions and under
TYPE_CHECKING count. Called by `make lint`; contracts in pyproject.toml have the import rules.
"""

import sys
from collections.abc import Iterator, Mapping
from itertools import chain

import grimp

PACKAGES = ("raytide", "raytide_sandbox")

Edge = tuple[str, str]
"""Importing module and imported module."""


def import_edges(graph: grimp.ImportGraph) -> set[Edge]:
    """All imports between the modules of the graph."""
    return {(module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module)}


def between_packages(edges: set[Edge], level: int) -> dict[Edge, list[Edge]]:
    """The imports between packages at most `level` levels below the root, by importing and imported package."""
    found: dict[Edge, list[Edge]] = {}
    for edge in sorted(edges):
        importer, imported = (".".join(name.split(".")[: level + 1]) for name in edge)
        if importer != imported:
            found.setdefault((importer, imported), []).append(edge)
    return found


def circles(edges: set[Edge] | Mapping[Edge, object]) -> list[list[str]]:
    """Strongly connected components with more than one member, sorted."""
    imported: dict[str, set[str]] = {}
    for importer, name in edges:
        imported.setdefault(importer, set()).add(name)
    reached = {name: _reachable(name, imported) for name in imported}
    found = {
        frozenset(other for other in reached[name] if name in reached.get(other, ()))
        for name in reached
        if name in reached[name]
    }
    return sorted(sorted(circle) for circle in found)


def _reachable(name: str, imported: Mapping[str, set[str]]) -> set[str]:
    """All modules that it imports directly or indirectly, including itself if it is in a circle."""
    found: set[str] = set()
    pending = [name]
    while pending:
        new = imported.get(pending.pop(), set()) - found
        found |= new
        pending += new
    return found


def report(package: str) -> Iterator[tuple[str, bool]]:
    """Lines to print, each with whether it reports a circle."""
    graph = grimp.build_graph(package, cache_dir=None)
    edges = import_edges(graph)
    yield f"import graph of {package}: {len(graph.modules)} modules and packages, {len(edges)} imports", False
    kinds = {"modules": {edge: [edge] for edge in edges}}
    kinds |= {f"packages, level {level}": between_packages(edges, level) for level in (1, 2)}
    for kind, imports in kinds.items():
        found = circles(imports)
        yield f"circles between {kind}: {len(found)}", bool(found)
        for circle in found:
            yield f"  {', '.join(circle)}", True
            inside = [imports[pair] for pair in sorted(imports) if set(pair) <= set(circle)]
            yield from ((f"    {importer} imports {name}", True) for importer, name in chain(*inside))


def main(*packages: str) -> int:
    """Print the reports; returns 1 if there is a circle."""
    lines = list(chain.from_iterable(map(report, packages or PACKAGES)))
    print("\n".join(text for text, _ in lines))
    return 1 if any(is_circle for _, is_circle in lines) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
