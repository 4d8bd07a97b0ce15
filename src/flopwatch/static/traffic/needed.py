"""Which values addresses, masks and control flow depend on: the others are never computed."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flopwatch.static.traffic.program import Block, Function, Module, Operation

#: What reads or writes memory by pointers: the places of its address and, if it has one, of its mask.
BY_POINTER = {"tt.load": (0, 1), "tt.store": (0, 2), "tt.atomic_rmw": (0, 2), "tt.atomic_cas": (0, 3)}
#: And by descriptors: whether its last operand is what is written.
BY_DESCRIPTOR = {
    "tt.descriptor_load": False,
    "tt.descriptor_gather": False,
    "tt.descriptor_store": True,
    "tt.descriptor_reduce": True,
    "tt.descriptor_scatter": True,
}


def needed_values(module: Module) -> frozenset[int]:
    """Return the values that decide what a kernel accesses and how often."""
    sources: dict[int, list[int]] = defaultdict(list)
    waiting: list[int] = []
    for function in module.functions.values():
        for value, source in _flow(module, function):
            sources[value].append(source)
    for operation in module.operations():
        waiting.extend(_roots(operation))
    needed: set[int] = set()
    while waiting:
        value = waiting.pop()
        if value not in needed:
            needed.add(value)
            waiting.extend(sources[value])
    return frozenset(needed)


def called(module: Module, operation: Operation) -> Function:
    """Return the function that ``tt.call`` calls."""
    name = operation.text.partition("@")[2].partition("(")[0].strip('"')
    return module.functions[name]


def _roots(operation: Operation) -> Sequence[int]:
    operands = operation.operands
    if operation.name in BY_POINTER:
        return [operands[place] for place in BY_POINTER[operation.name] if place < len(operands)]
    if operation.name in BY_DESCRIPTOR:
        return operands[:-1] if BY_DESCRIPTOR[operation.name] else operands
    match operation.name:
        case "scf.for":
            return operands[:3]
        case "scf.if" | "scf.condition" | "cf.cond_br" | "scf.index_switch" | "cf.switch":
            return operands[:1]
    return ()


def _flow(module: Module, function: Function) -> Iterator[tuple[int, int]]:
    """Yield (value, another that it is made of)."""
    targets = {block.label: block for block in function.body.blocks}
    for block in function.body.blocks:
        yield from _flow_of_block(module, block, targets)


def _flow_of_block(module: Module, block: Block, targets: dict[str, Block]) -> Iterator[tuple[int, int]]:
    for operation in block.operations:
        yield from _flow_of(module, operation)
        for label, given in operation.successors:
            if label in targets:
                yield from zip(targets[label].arguments, given, strict=True)
        for region in operation.regions:
            inner = {each.label: each for each in region.blocks}
            for each in region.blocks:
                yield from _flow_of_block(module, each, inner)


def _flow_of(module: Module, operation: Operation) -> Iterator[tuple[int, int]]:
    match operation.name:
        case "scf.for" | "scf.while":
            yield from _flow_of_loop(operation)
        case "scf.if":
            for values in _given(operation):
                yield from zip(operation.results, values, strict=False)
        case "tt.call":
            function = called(module, operation)
            yield from zip(function.parameters, operation.operands, strict=True)
            for block in function.body.blocks:
                if block.operations and block.operations[-1].name == "tt.return":
                    yield from zip(operation.results, block.operations[-1].operands, strict=True)
        case "tt.load":
            pass  # what is in memory is not known, wherever it is
        case _:
            yield from ((result, source) for result in operation.results for source in operation.operands)


def _flow_of_loop(operation: Operation) -> Iterator[tuple[int, int]]:
    """Yield what the arguments and results of a loop are made of: of its start, and of the end of each turn."""
    given = _given(operation)
    if operation.name == "scf.for":
        counter, *arguments = operation.regions[0].blocks[0].arguments
        bounds, starts = operation.operands[:3], operation.operands[3:]
        yield from ((counter, bound) for bound in bounds)
        for argument, result, start, end in zip(arguments, operation.results, starts, given[0], strict=False):
            yield from ((value, source) for value in (argument, result) for source in (start, end))
    else:
        before, after = (region.blocks[0].arguments for region in operation.regions)
        for argument, start, end in zip(before, operation.operands, given[1], strict=False):
            yield argument, start
            yield argument, end
        for argument, result, source in zip(after, operation.results, given[0][1:], strict=False):
            yield argument, source
            yield result, source


def _given(operation: Operation) -> list[tuple[int, ...]]:
    """Return what each region ends with."""
    return [
        region.blocks[-1].operations[-1].operands if region.blocks[-1].operations else ()
        for region in operation.regions
    ]
