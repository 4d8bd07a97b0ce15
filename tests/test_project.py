from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import re
import resource
import statistics
import subprocess
import sys
import tomllib
import unicodedata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from flopwatch.config import Config
from flopwatch.measure.numbers import check_numbers
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent
HELP = [sys.executable, "-m", "flopwatch", "--help"]
#: Characters that are invisible, or that make text read otherwise than it runs.
DECEPTIVE = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
PLAIN_CONTROLS = set("\n\t")
LARGEST_BYTES = 2**20


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    split = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): Version(version) for name, version in split}


def declared() -> list[Requirement]:
    """Return every requirement of pyproject.toml but those of the build."""
    project = pyproject()
    groups = [entry for group in project["dependency-groups"].values() for entry in group if isinstance(entry, str)]
    optional = [entry for extra in project["project"]["optional-dependencies"].values() for entry in extra]
    return [Requirement(entry) for entry in (*project["project"]["dependencies"], *optional, *groups)]


def unpinned(requirements: list[Requirement], pinned: dict[str, Version]) -> list[str]:
    return [
        str(requirement)
        for requirement in requirements
        if (version := pinned.get(canonicalize_name(requirement.name))) is None
        or not requirement.specifier.contains(version)
    ]


def deceptive(text: str) -> list[str]:
    found = {char for char in text if unicodedata.category(char) in DECEPTIVE} - PLAIN_CONTROLS
    return sorted(f"U+{ord(char):04X}" for char in found)


def repository_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not a git checkout: nothing says which files belong to the repository")
    paths = (ROOT / name for name in listing.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file()]


def fenced(markdown: str) -> list[str]:
    """Return the lines inside fenced code blocks."""
    return [
        line
        for block in re.findall(r"^```\w*\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]


@pytest.fixture(scope="module")
def listed() -> dict[str, str]:
    """Return what ``nox -l`` prints: session -> description."""
    pytest.importorskip("nox")
    listing = subprocess.run(
        [sys.executable, "-m", "nox", "--nocolor", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = re.findall(r"^[*-] (\S+)(?: -> (.*))?$", listing.stdout, re.MULTILINE)
    return dict(lines)


def test_every_requirement_is_pinned_to_a_version_that_it_allows() -> None:
    assert unpinned(declared(), pins()) == []


@pytest.mark.parametrize("requirement", ["torch>=2.14", "triton<3.7", "absent"])
def test_a_pin_that_does_not_fit_is_caught(requirement: str) -> None:
    assert unpinned([Requirement(requirement)], pins()) == [requirement]


def test_torch_is_pinned_with_its_released_partner() -> None:
    assert (pins()["torch"], pins()["triton"]) == (Version("2.13.0"), Version("3.7.1"))


def test_nox_explains_every_session(listed: dict[str, str]) -> None:
    assert {"tests", "gate", "bench", "history", "dashboard", "lint", "types", "docs"} < listed.keys()
    assert [name for name, description in listed.items() if not description] == []


@pytest.fixture(scope="module")
def noxfile() -> Iterator[ModuleType]:
    pytest.importorskip("nox")
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    with contextlib.chdir(ROOT):  # where nox runs it
        spec.loader.exec_module(loaded)
        yield loaded


def commands(session: Callable[[object], None]) -> list[tuple[str, ...]]:
    """Return what a session of nox would run, without what it installs."""
    ran: list[tuple[str, ...]] = []
    session(SimpleNamespace(posargs=[], install=lambda *_: None, run=lambda *words, **_: ran.append(words)))
    return ran


def test_lint_looks_at_the_workflows_and_at_those_that_init_writes(noxfile: ModuleType) -> None:
    ran = commands(noxfile.lint)
    templates = sorted(str(path) for path in Path("src/flopwatch/scaffold/templates").glob("*.yml"))

    assert len(templates) == 3
    assert ("zizmor", "--offline", "--persona", "pedantic", ".github", *templates) in ran
    assert {("actionlint",), ("actionlint", *templates)} <= set(ran)
    workflows = [path for path in repository_files() if path.suffix in (".yml", ".yaml")]
    assert [path for path in workflows if "zizmor: ignore" in path.read_text(encoding="utf-8")] == []
    assert [path for path in workflows if path.stem == "zizmor"] == []


def test_the_tests_that_need_an_extra_are_run_with_it(noxfile: ModuleType) -> None:
    needs = re.compile(r'importorskip\("(?:hatchet|tilelang|triton_viz)|find_spec\("(?:hatchet|tilelang|triton_viz)')
    files = {path for path in (ROOT / "tests").rglob("test_*.py") if needs.search(path.read_text(encoding="utf-8"))}
    run = [ROOT / name for name in noxfile.EXTRAS_TESTS]
    assert files
    assert [path for path in files if not any(path.is_relative_to(folder) for folder in run)] == []


def test_the_documentation_is_built_strictly(noxfile: ModuleType) -> None:
    (build,) = commands(noxfile.docs)

    assert build[:3] == ("sphinx-build", "-W", "-n")


def test_the_oldest_and_the_newest_supported_triton_are_tested(listed: dict[str, str]) -> None:
    assert {"triton(3.6.0)", "triton(3.9.0)"} == {name for name in listed if name.startswith("triton")}


def test_the_readme_gives_one_command_for_the_gate_and_one_for_the_tests() -> None:
    commands = [line for line in fenced((ROOT / "README.md").read_text(encoding="utf-8")) if "nox -s" in line]

    assert commands[:2] == ["python -m pip install nox && nox -s gate", "python -m pip install nox && nox -s tests"]


def test_ci_types_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert "\npython -m pip install nox && nox -s tests" in script
    assert "nox -s lint types" in script


def test_help_loads_no_torch() -> None:
    command = [sys.executable, "-X", "importtime", *HELP[1:]]
    trace = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    loaded = {line.rpartition("|")[2].strip() for line in trace.splitlines()}

    assert "flopwatch.cli" in loaded
    assert loaded & {"torch", "triton", "numpy", "asv"} == set()


def test_help_answers_in_less_than_0_3_s() -> None:
    # Processor time: what others do on the machine is not flopwatch's.
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(HELP, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    assert statistics.median(seconds) < 0.3


def test_every_setting_is_documented_with_its_default() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", text, re.MULTILINE))
    defaults = dataclasses.asdict(Config())

    assert {name: tomllib.loads(f"value = {value}")["value"] for name, value in rows.items()} == {
        name: list(default) if isinstance(default, tuple) else default for name, default in defaults.items()
    }


def test_no_file_has_characters_that_deceive() -> None:
    found = {}
    for path in repository_files():
        data = path.read_bytes()
        if b"\0" not in data and (characters := deceptive(data.decode("utf-8", errors="surrogateescape"))):
            found[str(path.relative_to(ROOT))] = characters

    assert found == {}


def test_a_character_that_deceives_is_caught() -> None:
    assert deceptive("if access:\u202e # \u2066allowed\n\r\x1b[0m") == ["U+000D", "U+001B", "U+202E", "U+2066"]


def test_no_module_beside_suites_hides_one_of_pythons() -> None:
    # Discovering the suites in evidence/slowed makes evidence/ a place to import from.
    beside = {path.stem for folder in ("evidence", "benchmarks", "examples") for path in (ROOT / folder).glob("*.py")}

    assert not beside & sys.stdlib_module_names
    assert "profiles" in beside


def test_only_results_are_large() -> None:
    large = [path.relative_to(ROOT) for path in repository_files() if path.stat().st_size > LARGEST_BYTES]

    assert [str(path) for path in large if path.parts[0] != "results"] == []


def test_the_suite_of_the_documentation_runs(cuda: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del cuda
    example = re.search(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "suites.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert example is not None
    (tmp_path / "documented").mkdir()
    (tmp_path / "documented" / "softmax.py").write_text(example[1], encoding="utf-8")
    (tmp_path / "mykernels.py").write_text("import torch\n\n\ndef softmax(x):\n    return torch.softmax(x, dim=-1)\n")
    monkeypatch.syspath_prepend(tmp_path)

    discovery = discover(tmp_path / "documented")
    suite = discovery.suites["Softmax"]
    case = suite.small_case(next(suite.cases()))

    assert discovery.failures == {}
    assert case.id == "Softmax[3x70,float16,flopwatch]"
    assert suite().bytes_moved(*case.values[:-1]) == 2 * 3 * 70 * 2
    numbers = check_numbers(suite(), case, seed=0)
    assert numbers.max_diff_eps is not None
    assert 0 < numbers.max_diff_eps < 1
