"""The text of a suite: the same for what is tried and for what is written."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.scaffold.arguments import Guess
from flopwatch.scaffold.formulas import Formula, elements
from flopwatch.waivers import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What the reference of a suite raises whose formula nobody knows yet.
UNKNOWN = "write what {name} computes, in float64"


@dataclass(frozen=True, kw_only=True, slots=True)
class SuitePlan:
    """A suite of one launch function.

    Attributes:
        module: where the function is imported from.
        function: its name.
        guess: how it is called.
        full: the sizes that are timed.
        small: those that the interpreter runs.
        dtypes: of its inputs.
        formula: the reference; None where it is not known.
    """

    module: str
    function: str
    guess: Guess
    full: dict[str, int]
    small: dict[str, int]
    dtypes: tuple[str, ...]
    formula: Formula | None = None

    @property
    def name(self) -> str:
        """The name of the class.

        >>> from flopwatch.scaffold.arguments import Guess
        >>> guess = Guess(arguments=(), tensors=())
        >>> SuitePlan(module="m", function="_rms_norm", guess=guess, full={}, small={}, dtypes=()).name
        'RmsNorm'
        """
        return class_name(self.function)


def class_name(function: str) -> str:
    """Return the name of a function's suite."""
    name = "".join(word[:1].upper() + word[1:] for word in function.split("_"))
    return f"{name}Suite" if name in (function, "Suite") else name


def suite_module(plan: SuitePlan) -> str:
    """Write a whole module: one suite, complete but for a reference that nobody knows."""
    return (
        f'"""The suite of {plan.function}, written by `flopwatch init`; make it yours."""\n\n'
        "import torch\n\n"
        "from flopwatch import Suite\n"
        f"from {plan.module} import {plan.function}\n\n\n"
        f"{suite_class(plan, plan.name)}"
    )


def suite_class(plan: SuitePlan, name: str) -> str:
    """Write the class."""
    guess = plan.guess
    sizes = ", ".join(guess.sizes) + ("," if len(guess.sizes) == 1 else "")
    unpack = f'        {sizes} = map(int, shape.split("x"))\n'
    if len(guess.sizes) == 1:
        unpack = f"        {guess.sizes[0]} = int(shape)\n"
    result = guess.returns if guess.returns not in ("", "[0]") else ""
    call = f"{plan.function}({', '.join(guess.arguments)})"
    run = f"        {call}\n        return {result}\n" if result else f"        return {call}{guess.returns}\n"
    arguments = ", ".join(guess.arguments)
    item = "getattr(torch, dtype).itemsize"
    read = [elements(tensor) for tensor in guess.inputs]
    dtypes = ", ".join(f'"{dtype}"' for dtype in plan.dtypes)
    if plan.formula is None:
        reference = f'        raise NotImplementedError("{UNKNOWN.format(name=plan.function)}")\n'
        flops = "        return 0.0  # the floating-point operations of one call; TFLOPS derive from it\n"
        written, note = elements(guess.inputs[0]), "        # taking the result for as large as the first input\n"
    else:
        reference = f"        return {plan.formula.reference}\n"
        flops = f"        return {plan.formula.flops}\n"
        if _needs_sizes(flops, guess.sizes):
            flops = unpack + flops
        written, note = plan.formula.written, ""
    return (
        f"class {name}(Suite):\n"
        f'    """{plan.function} of {plan.module}; `shape` is {" x ".join(guess.sizes)}."""\n\n'
        f'    params = (["{shape_text(plan.full)}"], [{dtypes}])  # the sizes that matter to you\n'
        '    param_names = ("shape", "dtype")\n'
        f'    small = {{"shape": "{shape_text(plan.small)}"}}  # for the interpreter, where there is no GPU\n\n'
        "    def inputs(self, shape, dtype, *, seed):\n"
        f"{unpack}{_inputs(plan)}"
        f"        return {arguments if len(guess.arguments) > 1 else f'({arguments},)'}\n\n"
        f"    def run(self, {arguments}):\n{run}\n"
        f"    def reference(self, {arguments}):\n{reference}\n"
        f"    def flops(self, shape, dtype):\n{flops}\n"
        "    def bytes_moved(self, shape, dtype):\n"
        f"{unpack}{note}        return ({_sum([*read, written])}) * {item}\n"
    )


def _sum(terms: Sequence[str]) -> str:
    """Write a sum, like terms together.

    >>> _sum(["n", "m * n", "n"])
    '2 * n + m * n'
    """
    counted = Counter(terms)
    return " + ".join(f"{number} * {term}" if number > 1 else term for term, number in counted.items())


def _needs_sizes(text: str, sizes: Sequence[str]) -> bool:
    words = text.replace("*", " ").replace("/", " ").split()
    return any(size in words for size in sizes)


def _inputs(plan: SuitePlan) -> str:
    lines = [
        '        generator = torch.Generator(device="cuda").manual_seed(seed)\n',
        "        kind = getattr(torch, dtype)\n",
    ]
    for tensor in plan.guess.tensors:
        size = ", ".join(tensor.dimensions)
        if tensor.output:
            size = f"({size},)" if len(tensor.dimensions) == 1 else f"({size})"
            lines.append(f'        {tensor.name} = torch.full({size}, float("nan"), dtype=kind, device="cuda")\n')
        else:
            lines.append(f'        {tensor.name} = torch.randn({size}, generator=generator, device="cuda").to(kind)\n')
    lines += [f"        {name} = {value}\n" for name, value in plan.guess.numbers.items()]
    return "".join(lines)


def shape_text(sizes: Mapping[str, int]) -> str:
    """Write sizes as a value of the parameter `shape`.

    >>> shape_text({"m": 64, "n": 48})
    '64x48'
    """
    return "x".join(map(str, sizes.values()))


def template_module(reasons: Sequence[str], *, module: str = "mykernels", function: str = "launch") -> str:
    """Write a module whose suite is commented out, with the reasons why it could not be written."""
    told = "".join(f"#   {printable(reason)}\n" for reason in reasons)
    name = class_name(function)
    return (
        '"""A suite to be filled in, begun by `flopwatch init`; its documentation has a whole one."""\n\n'
        f"# It is a comment because:\n{told}"
        "# Take the comment signs away and fill in the three dots.\n#\n"
        "# import torch\n#\n"
        "# from flopwatch import Suite\n"
        f"# from {module} import {function}\n#\n#\n"
        f"# class {name}(Suite):\n"
        f'#     """What {function} computes."""\n#\n'
        '#     params = (["4096x4096"], ["float16"])  # strings: the sizes and dtypes that matter to you\n'
        '#     param_names = ("shape", "dtype")\n'
        '#     small = {"shape": "33x70"}  # for the interpreter; odd sizes find mask errors\n#\n'
        "#     def inputs(self, shape, dtype, *, seed):\n"
        '#         rows, columns = map(int, shape.split("x"))\n'
        '#         generator = torch.Generator(device="cuda").manual_seed(seed)\n'
        '#         x = torch.randn(rows, columns, generator=generator, device="cuda").to(getattr(torch, dtype))\n'
        "#         return (x,)  # what run and reference are called with\n#\n"
        f"#     def run(self, x):\n#         return {function}(x)\n#\n"
        "#     def reference(self, x):\n#         return ...  # the same in float64, from x.double()\n#\n"
        "#     def flops(self, shape, dtype):\n#         return ...  # floating-point operations of one call\n#\n"
        "#     def bytes_moved(self, shape, dtype):\n"
        "#         return ...  # of one call: each input read once, each output written once\n"
    )
