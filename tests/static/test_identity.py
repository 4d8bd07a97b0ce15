from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import flopwatch
from flopwatch.model import from_json
from flopwatch.static.identity import CaseIdentity, differing_parts, is_same

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Checkout = tuple[str, str, str, str, tuple[str, ...]]
    Identities = dict[str, CaseIdentity]

KERNELS = '''\
"""A tuned kernel and what launches it."""

import contextlib
import functools
import logging

import torch
import triton
import triton.language as tl
from lab import settings
from lab.sizes import rounded

CONFIGS = [triton.Config({"BLOCK": 256}, num_warps=4), triton.Config({"BLOCK": 512}, num_warps=8)]
CHECKS = {"first": lambda x: x.numel() > 0, "last": lambda x: x.numel() > 1}


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * factor, mask=mask)


@contextlib.contextmanager
def quiet():
    yield 5


@functools.cache
def smallest():
    return settings.LIMITS["small"].rows


def _hook(x):
    return x.numel() * 11


logging.lab_hook = _hook


def unrelated():
    return 1


def scale(x, factor, strict=False):
    """Return x * factor."""
    from lab.late import LATE

    out = torch.empty_like(x)
    checked = [check(x) for check in CHECKS.values()]
    with quiet():
        logging.lab_hook(x)
    n = rounded(x.numel(), smallest() + LATE * 0)
    scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, factor)
    return out
'''
SETTINGS = """\
from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    rows: int
    columns: int = 3

    def area(self):
        return self.rows * self.columns


LIMITS = {"small": Limit(1), "large": Limit(64)}
NAMES = {"b", "a", "c"}
"""
LAB = {
    "__init__.py": "from lab.kernels import scale\n",
    "kernels.py": KERNELS,
    "settings.py": SETTINGS,
    "sizes.py": "def rounded(n, step):\n    return n + (-n) % step\n",
    "late.py": "LATE = 7\n",
    "table.json": "{}\n",
}
SUITE = """\
import torch
from flopwatch import Suite
from lab import scale


class Scale(Suite):
    params = (["1000000"],)
    param_names = ("n",)

    def inputs(self, n, *, seed):
        return torch.randn(int(n), device="cuda").half(), 3.0

    def run(self, x, factor):
        return scale(x, factor)

    def flops(self, n):
        return int(n)

    def bytes_moved(self, n):
        return 4 * int(n)
"""

# Planted differences: the file, what is replaced and by what, and all that must be said to differ.
PLANTED = {
    "kernel arithmetic": ("kernels.py", "* factor, mask", "* factor + 1, mask", ("kernel code",)),
    "warps": ("kernels.py", "num_warps=4", "num_warps=2", ("kernel code", "launches", "configurations", "host code")),
    "grid": (
        "kernels.py",
        '(triton.cdiv(n, meta["BLOCK"]),)',
        '(triton.cdiv(n, meta["BLOCK"]) + 1,)',
        ("launches", "host code"),
    ),
    "constant of another module": ("settings.py", "Limit(64)", "Limit(65)", ("host code",)),
    "default of a dataclass": ("settings.py", "columns: int = 3", "columns: int = 4", ("host code",)),
    "method": ("settings.py", "self.rows * self.columns", "self.columns * self.rows", ("host code",)),
    "helper": ("sizes.py", "n + (-n) % step", "-((-n) // step) * step", ("host code",)),
    "added configuration": (
        "kernels.py",
        "num_warps=8)]",
        'num_warps=8), triton.Config({"BLOCK": 1024}, num_warps=8)]',
        ("kernel code", "launches", "configurations", "host code"),
    ),
    "configurations in another order": (
        "kernels.py",
        '[triton.Config({"BLOCK": 256}, num_warps=4), triton.Config({"BLOCK": 512}, num_warps=8)]',
        '[triton.Config({"BLOCK": 512}, num_warps=8), triton.Config({"BLOCK": 256}, num_warps=4)]',
        ("kernel code", "launches", "configurations", "host code"),
    ),
    "key": ("kernels.py", 'key=["n"]', 'key=["n", "factor"]', ("configurations", "host code")),
    "default argument": ("kernels.py", "strict=False", "strict=True", ("host code",)),
    "swapped functions of a table": (
        "kernels.py",
        'lambda x: x.numel() > 0, "last": lambda x: x.numel() > 1',
        'lambda x: x.numel() > 1, "last": lambda x: x.numel() > 0',
        ("host code",),
    ),
    "behind a library's decorator": ("kernels.py", "yield 5", "yield 6", ("host code",)),
    "kept by a library": ("kernels.py", "numel() * 11", "numel() * 12", ("host code",)),
    "imported while running": ("late.py", "LATE = 7", "LATE = 8", ("host code",)),
    "effect of an import": (
        "sizes.py",
        "def rounded",
        "import torch\n\ntorch.set_num_threads(1)\n\n\ndef rounded",
        ("host code",),
    ),
    "data file": ("table.json", "{}", "{ }", ("host code",)),
    "another call of torch": (
        "kernels.py",
        "torch.empty_like(x)\n",
        "torch.zeros_like(x)\n",
        ("launches", "host code"),
    ),
    "works in place": (
        "kernels.py",
        'scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out,',
        'scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, x,',
        ("launches", "host code"),
    ),
    "alignment": (
        "kernels.py",
        "torch.empty_like(x)\n",
        "torch.empty_like(x)[1:]\n",
        ("kernel code", "launches", "host code"),
    ),
}
# Edits that launch the kernel by a handle, as Triton's tutorials do, which once is kept and once is not.
HANDLE = (
    "kernels.py",
    '    scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, factor)\n',
    """    handle = scale_kernel.fn.warmup(x, out, n, factor, BLOCK=256, num_warps=4, grid=(1,))
    handle._init_handles()
    handle[(min(triton.cdiv(n, 256), 65536 // handle.n_regs), 1, 1)](x, out, n, factor, 256)
""",
)
KEEP = ("kernels.py", "    handle._init_handles()\n", "    handle._init_handles()\n    scale.kept = handle\n")
# What changes nothing, though Triton hashes some of it.
HARMLESS = {
    "comment": (
        "kernels.py",
        "    mask = offsets < n\n",
        "    # The last block is not full.\n    mask = offsets < n  # n\n",
    ),
    "docstring": ("kernels.py", '"""Return x * factor."""', '"""Return the product."""'),
    "added docstring": ("sizes.py", "step):\n", 'step):\n    """Round."""\n'),
    "moved lines": ("kernels.py", "\n\n@triton.autotune", "\n\n\n\n\n\n@triton.autotune"),
    "formatting": (
        "settings.py",
        '{"small": Limit(1), "large": Limit(64)}',
        "{\n  'small' : Limit( 1 ),\n  'large': Limit(64),\n}",
    ),
    "unrelated function": ("kernels.py", "    return 1\n", "    return 2\n"),
    "unrelated constant": ("settings.py", '{"b", "a", "c"}', '{"b", "a"}'),
    "local name in a kernel": (
        "kernels.py",
        "    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * factor, mask=mask)",
        "    inside = mask\n    tl.store(out + offsets, tl.load(x + offsets, mask=inside) * factor, mask=inside)",
    ),
}
# What leaves a case without identity, and words of its cause.
UNKNOWN = {
    "names looked up": (
        "sizes.py",
        "    return n",
        '    assert globals()["__name__"]\n    return n',
        "sizes.rounded looks names up",
    ),
    "module passed on": (
        "kernels.py",
        "    out = torch.empty_like(x)\n",
        "    out = torch.empty_like(x)\n    str(settings)\n",
        "looks names of the module lab.settings up",
    ),
    "opaque object": ("late.py", "LATE = 7", "LATE = type('T', (int,), {'__reduce_ex__': None})(7)", "late"),
    "compiled and not launched": (
        "kernels.py",
        "    out = torch.empty_like(x)\n",
        "    out = torch.empty_like(x)\n    scale_kernel.fn.warmup(x, out, 5, factor, BLOCK=1024, grid=(1,))\n",
        "scale_kernel is compiled, and whether anything launches it cannot be seen",
    ),
    "compiled by hand": (
        "kernels.py",
        "    out = torch.empty_like(x)\n",
        """    out = torch.empty_like(x)
    kinds = {"x": "*fp16", "out": "*fp16", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"}
    triton.compile(triton.compiler.ASTSource(scale_kernel.fn, kinds, {"BLOCK": 256}))
""",
        "scale_kernel is compiled, and whether anything launches it cannot be seen",
    ),
    "times": (
        "kernels.py",
        "    out = torch.empty_like(x)\n",
        """    out = torch.empty_like(x)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    out = out if start.elapsed_time(end) > 0 else x
""",
        "host code reads how long the GPU took",
    ),
    "does not compile": ("kernels.py", 'BLOCK": 512', 'BLOCK": 500', "does not compile"),
}

_IDENTIFY = """
import json, sys
from pathlib import Path
from flopwatch import overlay
from flopwatch.measure.inputs import make_inputs
from flopwatch.model import to_json
from flopwatch.static import pretend_gpu
from flopwatch.static.identity import case_identity
from flopwatch.static.watch import is_under, watched
from flopwatch.suite import discover

answers = {}
for name, source, package, benchmarks, case_ids in json.loads(sys.argv[1]):
    for module in [module for module in sys.modules if is_under(module, [package, "benchmarks"])]:
        del sys.modules[module]
    finder = overlay.install(Path(source), [package])
    discovery = discover(Path(benchmarks))
    assert not discovery.failures, discovery.failures
    for suite_type in discovery.suites.values():
        for case in suite_type.cases():
            if case.provider != "flopwatch" or (case_ids and case.id not in case_ids):
                continue
            suite = suite_type()
            with pretend_gpu("h200") as recorder, watched([package]) as watch:
                suite.run(*make_inputs(suite, case, seed=0))
            label = f"{name} {case.id}" if case_ids else name
            answers[label] = case_identity(recorder, watch, suite, case)
    sys.meta_path.remove(finder)
    sys.path.remove(str(Path(benchmarks).parent))
print(to_json(answers).decode())
"""
BUNDLED = ("Matmul[512x512x512,float16,flopwatch]", "VectorAdd[1048576,float32,flopwatch]")


def lab(folder: Path, name: str, *edits: Sequence[object]) -> Checkout:
    """Write a checkout of the package above and its suite, edited."""
    files = dict(LAB)
    for edit in edits:
        file, old, new = map(str, edit[:3])
        assert files[file].count(old) == 1
        files[file] = files[file].replace(old, new)
    source, benchmarks = folder / name / "src", folder / name / "benchmarks"
    (source / "lab").mkdir(parents=True)
    benchmarks.mkdir()
    for file, text in files.items():
        (source / "lab" / file).write_text(text, encoding="utf-8")
    (benchmarks / "__init__.py").touch()
    (benchmarks / "scale.py").write_text(SUITE, encoding="utf-8")
    return (name, str(source), "lab", str(benchmarks), ())


def bundled(folder: Path, name: str, edit: Callable[[str], str]) -> Checkout:
    """Copy the bundled kernels and their suites, with every file edited."""
    here = Path(flopwatch.__file__).parent
    kernels = folder / name / "src" / "flopwatch" / "kernels"
    shutil.copytree(here / "kernels", kernels, ignore=shutil.ignore_patterns("__pycache__"))
    for path in kernels.glob("*.py"):
        path.write_text(edit(path.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copytree(Path(__file__).parents[2] / "benchmarks", folder / name / "benchmarks")
    return (name, str(folder / name / "src"), "flopwatch.kernels", str(folder / name / "benchmarks"), BUNDLED)


def identify(checkouts: list[Checkout], *, cache: Path, seed: int) -> Identities:
    """Identify the cases of each checkout in one fresh process."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(cache), "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "-c", _IDENTIFY, json.dumps(checkouts)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return from_json(done.stdout.splitlines()[-1], dict[str, CaseIdentity])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    """Everything as it is and with each edit, in one process."""
    folder = tmp_path_factory.mktemp("base")
    edited = [lab(folder, name, edit) for name, edit in (PLANTED | HARMLESS | UNKNOWN).items()]
    edited += [
        lab(folder, "handle", HANDLE),
        lab(folder, "handle of another kernel", HANDLE, PLANTED["kernel arithmetic"]),
        lab(folder, "handle moved", HANDLE, HARMLESS["moved lines"], HARMLESS["comment"]),
        lab(folder, "kept handle", HANDLE, KEEP),
        lab(folder, "kept handle moved", HANDLE, KEEP, HARMLESS["moved lines"], HARMLESS["comment"]),
        lab(folder, "kept handle of another kernel", HANDLE, KEEP, PLANTED["kernel arithmetic"]),
    ]
    return identify([lab(folder, "plain"), *edited, bundled(folder, "bundled", str)], cache=folder / "cache", seed=1)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory, base: Identities) -> Identities:
    """Some of it in another process with other hashes, in other folders, in another order."""
    assert base
    folder = tmp_path_factory.mktemp("another_head")
    cache = next(folder.parent.glob("base*")) / "cache"
    return identify(
        [
            bundled(folder, "bundled", lambda text: "# moved\n\n\n" + text.replace('"""Compute', '"""Calculate')),
            lab(folder, "helper", PLANTED["helper"]),
            lab(folder, "plain"),
        ],
        cache=cache,
        seed=2,
    )


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_found_and_named(name: str, base: Identities) -> None:
    assert not is_same(base["plain"], base[name])
    assert PLANTED[name][3] == differing_parts(base["plain"], base[name])


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_nothing_is_the_same(name: str, base: Identities) -> None:
    assert base["plain"] == base[name]
    assert is_same(base["plain"], base[name])


def test_a_kernel_that_is_launched_by_its_handle_counts_by_its_code(base: Identities) -> None:
    assert base["handle"].cause == ""
    assert not is_same(base["handle"], base["handle of another kernel"])
    assert differing_parts(base["handle"], base["handle of another kernel"]) == ("kernel code",)
    assert is_same(base["handle"], base["handle moved"])


def test_a_handle_that_is_kept_counts_by_its_code_wherever_it_was_compiled_from(base: Identities) -> None:
    assert base["kept handle"].cause == ""
    assert not is_same(base["kept handle"], base["kept handle of another kernel"])
    assert is_same(base["kept handle"], base["kept handle moved"])


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_told_has_no_identity_and_says_why(name: str, base: Identities) -> None:
    assert UNKNOWN[name][3] in base[name].cause
    assert base[name] == CaseIdentity(cause=base[name].cause, torch_work=base[name].torch_work)
    assert not is_same(base[name], base[name])


@pytest.mark.parametrize("name", ["plain", "helper"])
def test_processes_folders_and_hash_seeds_agree(name: str, base: Identities, head: Identities) -> None:
    assert is_same(base[name], head[name])


@pytest.mark.parametrize("case_id", BUNDLED)
def test_the_bundled_kernels_are_the_same_with_other_comments_and_docstrings(
    case_id: str, base: Identities, head: Identities
) -> None:
    assert base[f"bundled {case_id}"].cause == ""
    assert is_same(base[f"bundled {case_id}"], head[f"bundled {case_id}"])
