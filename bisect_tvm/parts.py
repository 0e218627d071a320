"""Components of a program, cut out, imported and built side by side.

Building costs little for parts that are not run, since equal parts share a function and equal kernels are compiled once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bisect_tvm.lowering.importer import Imported
from bisect_tvm.lowering.workshop import Runnable, Workshop
from bisect_tvm.measure import Part
from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import Boundary, created, cut, signature_of
from bisect_tvm.model.reference import Value
from bisect_tvm.stopwatch import Stopwatch


@dataclass
class Cutter:
    """Cuts components out of one program and builds them. What was built once is not built again.

    Args:
        program: the captured program.
        values: the reference's, for shapes, and for numbers that enter.
        workshop: builds.
        clock: takes the time.
    """

    program: Program
    values: Mapping[str, Value]
    workshop: Workshop
    clock: Stopwatch
    _built: dict[str, Runnable] = field(default_factory=dict)
    _ready: dict[str, Imported] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)
    """By graph node, what the reason is called that its operator alone could not be built."""

    def build(self, edges: Mapping[str, Boundary]) -> dict[str, Part]:
        """Build all components that can be; returned under the same names.

        Args:
            edges: what enters and leaves each component, by any name.
        """
        keys, imported = self._imported(edges)
        self._built |= self.workshop.build_parts(imported)
        for id, edge in edges.items():
            self._note_refused(id, edge, keys[id])
        return {id: Part(edge, self._built.get(keys[id]) or self._reason(id, edge, keys[id])) for id, edge in edges.items()}

    def prepare(self, edges: Mapping[str, Boundary]) -> None:
        """Do what can be done ahead of `build`, which may then be asked for some of these components or for all."""
        self.workshop.prepare(self._imported(edges)[1])

    def _imported(self, edges: Mapping[str, Boundary]) -> tuple[dict[str, str], dict[str, Imported]]:
        """The components' keys, and what the importer made of those that are not built yet."""
        with self.clock("cut"):
            keys = {id: self.key(edge) for id, edge in edges.items()}
        imported: dict[str, Imported] = {}
        for id, edge in sorted(edges.items(), key=lambda item: len(item[1].nodes)):  # operators before what holds them
            key = keys[id]
            if key not in imported and key not in self._built and not self._reason(id, edge, key):
                if key not in self._ready and (made := self._import(key, edge)) is not None:
                    self._ready[key] = made
                if key in self._ready:
                    imported[key] = self._ready[key]
                self._note_refused(id, edge, key)
        return keys, imported

    def key(self, edge: Boundary) -> str:
        """The name of the function that a component becomes: the same for components that give the same cut."""
        return f"f{signature_of(edge, self.values, self.workshop.convert_map or ())[:16]}"

    def _import(self, key: str, edge: Boundary) -> Imported | None:
        with self.clock("cut"):
            exported = cut(self.program, edge, self.values)
        return self.workshop.import_one(key, exported, created(edge, self.values))

    def _note_refused(self, id: str, edge: Boundary, key: str) -> None:
        if edge.is_operator and key in self.workshop.failures:
            node = edge.nodes[0]
            self._refused.setdefault(node.name, f"{node.target} ({id}), which could not be built: {self.workshop.failures[key]}")

    def _reason(self, id: str, edge: Boundary, key: str) -> str:
        """Why there is nothing to run; an operator inside that could not be built says most."""
        inside = () if edge.is_operator else (self._refused[node.name] for node in edge.nodes if node.name in self._refused)
        refused = next(iter(inside), None)
        return f"it holds {refused}" if refused else self.workshop.failures.get(key, "")
