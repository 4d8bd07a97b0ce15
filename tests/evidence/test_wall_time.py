from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest
from evidence import document, wall_time
from evidence.edits import KERNELS
from evidence.goals import WALL_GOALS
from evidence.wall_time import BASE, COLD, COLD_60, HEADS, PLANS, SIXTY, SLOWED, Clone, spread
from evidence.wall_time_records import Asv, Run, Stage, Step, WallTime, read_table
from tests.evidence.test_wall_time_records import ALL_ROWS, gate_result, verdict

from flopwatch import git
from flopwatch.errors import UndecidedError, UsageError
from flopwatch.gate.static import select_cases
from flopwatch.measure.machine import Gpu, Machine
from flopwatch.measure.protocol import DeclaredCase, Hello
from flopwatch.model import Case, Mark, from_json, to_json
from flopwatch.suite import Suite, discover

ROOT = Path(__file__).parents[2]
IN_A_REPOSITORY = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository, not only its files")
COMMIT = "a1b2c3d4e5f60718293a4b5c6d7e8f9012345678"
MACHINE = Machine(
    gpu=Gpu(name="NVIDIA H200", uuid="GPU-4a1f6e2c", driver="580.159.04", temperature_c=34),
    versions={"python": "3.12.3", "torch": "2.11.0", "triton": "3.6.0"},
    cpu_model="Intel(R) Xeon(R) Processor",
    cpu_count=16,
)


def run(name: str, seconds: float, **fields: object) -> Run:
    of_plan = {
        "clean": {"marks": {"same": 66}, "exit_code": 0, "measured": 66},
        "flagged": {"marks": {"same": 60, "slower": 6}, "exit_code": 1, "measured": 66},
        "identical": {"marks": {"same": 66}, "exit_code": 0, "measured": 0, "identical": 66, "stages": ()},
    }[PLANS[name].head]
    made = {
        "name": name,
        "what": PLANS[name].what,
        "warm": not PLANS[name].cold,
        "seconds": seconds,
        "identical": 0,
        "stages": (Stage(name="screen", cases=66, pairs=8, seconds=110.0),),
    }
    return Run(**(made | of_plan | fields))  # type: ignore[arg-type] # fields by name, for brevity


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy the files that are edited."""
    for path in {edit.path for edits in HEADS.values() for edit in edits} | {wall_time.ONLY_SELECTED.path}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def functions(path: Path) -> dict[str, list[str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {node.name: [ast.unparse(line) for line in node.body] for node in found}


@pytest.mark.parametrize(
    ("module", "launcher"), [("vector_add", "_add"), ("attention", "_eager"), ("matmul", "_multiply")]
)
def test_the_clean_head_has_a_line_more_in_each_launcher_and_nowhere_else(
    checkout: Path, module: str, launcher: str
) -> None:
    path = checkout / KERNELS / f"{module}.py"
    before = functions(path)
    for edit in HEADS["clean"]:
        edit.apply(checkout)
    after = functions(path)

    assert [name for name in before if before[name] != after[name]] == [launcher]
    assert [line for line in after[launcher] if line not in before[launcher]] == ["unused = None"]
    assert after[launcher][after[launcher].index("unused = None") + 1].partition("(")[0] in (
        "out = torch.empty",
        "c = torch.empty",
    )


def test_every_kernel_module_is_edited_for_the_clean_head() -> None:
    launching = {
        path.name for path in (ROOT / KERNELS).glob("*.py") if "= Launches(" in path.read_text(encoding="utf-8")
    }

    assert launching == {Path(edit.path).name for edit in HEADS["clean"]}


def test_the_flagged_head_adds_smaller_blocks_and_the_identical_one_a_comment(checkout: Path) -> None:
    before = {path.name: path.read_text(encoding="utf-8") for path in (checkout / KERNELS).glob("*.py")}
    for edit in HEADS["flagged"]:
        edit.apply(checkout)
    flagged = functions(checkout / KERNELS / "vector_add.py")
    for name, text in before.items():
        (checkout / KERNELS / name).write_text(text, encoding="utf-8")
    for edit in HEADS["identical"]:
        edit.apply(checkout)

    assert flagged["block_size_for"][-1] == "return 64"
    assert "unused = None" in flagged["_add"]
    matmul = (checkout / KERNELS / "matmul.py").read_text(encoding="utf-8")
    assert matmul != before["matmul.py"]
    assert ast.dump(ast.parse(matmul)) == ast.dump(ast.parse(before["matmul.py"]))


def test_asv_gets_the_cases_of_the_gate_beside_it_and_no_others(checkout: Path) -> None:
    wall_time.ONLY_SELECTED.apply(checkout)
    path = checkout / wall_time.ONLY_SELECTED.path
    module = types.ModuleType("only_selected")
    sys.modules[module.__name__] = module  # where a suite looks for its module
    try:
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), module.__dict__)  # noqa: S102 - our own suites
    finally:
        del sys.modules[module.__name__]
    suites = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Suite)]
    mine = [each for each in suites if each.__module__ == module.__name__]
    left = {case.id for suite in mine for case in suite.cases()}
    declared = discover(ROOT / "benchmarks").suites.values()
    gated = {case.id for suite in declared for case in suite.cases() if case.provider == suite.own_provider}

    assert left == {name for name in gated if wall_time.SELECTED in name}
    assert len(left) >= 12
    benchmarks = {f"matmul.{each.__name__}.track_{metric}" for each in declared for metric in ("time", "spills")}
    chosen = {name for name in benchmarks if re.search(wall_time.ASV_BENCHMARKS, name)}
    assert chosen == {f"matmul.{each.__name__}.track_time" for each in mine}


def own_cases() -> list[str]:
    declared = discover(ROOT / "benchmarks").suites.values()
    return [case.id for suite in declared for case in suite.cases() if case.provider == suite.own_provider]


def test_sixty_cases_are_evenly_spread_and_have_those_that_the_flagged_head_slows() -> None:
    names = own_cases()
    picked = spread(names, SIXTY, SLOWED)

    assert len(picked) == SIXTY
    assert [name for name in names if name in picked] == picked
    assert {name for name in names if SLOWED in name} <= set(picked)
    assert {name.partition("[")[0] for name in names} == {name.partition("[")[0] for name in picked}
    gaps = "".join("x" if name in picked else "." for name in names)
    assert ".." not in gaps


def test_a_gate_is_told_the_sixty_cases_and_takes_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = own_cases()
    monkeypatch.setattr(Clone, "sixty", lambda _clone: spread(names, SIXTY, SLOWED))
    stand_in(tmp_path, "flopwatch", "import pathlib, sys; pathlib.Path('told').write_text(sys.argv[5])" + GATE)
    (tmp_path / "tree" / "result").write_bytes(to_json(gate_result([verdict(1, Mark.SAME)])))
    Clone(folder=tmp_path, commit=COMMIT).gate("clean-cold-60", PLANS["clean-cold-60"])
    parts = [name.partition("[") for name in names]
    cases = [Case(suite=suite, values=tuple(rest.rstrip("]").split(","))) for suite, _, rest in parts]
    declared = [DeclaredCase(case=c, small=c, own=True, max_diff_eps=None, flops=1.0, bytes_moved=1.0) for c in cases]
    hello = Hello(
        gpu=None, gpu_uuid=None, compute_capability=None, versions={}, declared=tuple(declared), import_failures={}
    )
    selected = select_cases(hello, (tmp_path / "tree" / "told").read_text(encoding="utf-8"))

    assert [entry.case.id for entry in selected] == spread(names, SIXTY, SLOWED)


def test_names_that_select_more_than_sixty_cases_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Alike:
        """Stands in for a worker; the name of its first case is part of that of another, which is left out."""

        def __init__(self, *_: object) -> None:
            ids = ["Add[1]", *(f"Mul[{number}]" for number in range(SIXTY)), "BigAdd[1]"]
            self.hello = SimpleNamespace(declared=[SimpleNamespace(case=SimpleNamespace(id=n), own=True) for n in ids])

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(wall_time, "Worker", Alike)
    monkeypatch.setattr(wall_time, "spread", lambda names, number, _needed: names[:number])

    with pytest.raises(UsageError, match="60 names do not select 60 cases"):
        Clone(folder=tmp_path, commit=COMMIT).sixty()


def test_runs_are_kept_by_name_in_the_order_in_which_they_are_run() -> None:
    found = None
    for each in (run("identical", 14.0), run("clean-cold", 177.0), run("identical", 13.0)):
        found = wall_time.added(found, each, commit=COMMIT, machine=MACHINE, command=f"of {each.seconds}")

    assert found is not None
    assert [(each.name, each.seconds) for each in found.runs] == [("clean-cold", 177.0), ("identical", 13.0)]
    assert found.commands == ("of 14.0", "of 177.0", "of 13.0")


def test_runs_on_two_machines_do_not_mix() -> None:
    found = wall_time.added(None, run("identical", 14.0), commit=COMMIT, machine=MACHINE, command="")
    assert MACHINE.gpu is not None
    warmer = replace(MACHINE, gpu=replace(MACHINE.gpu, temperature_c=60))
    other = replace(MACHINE, gpu=replace(MACHINE.gpu, uuid="GPU-5b2e"))

    assert len(wall_time.added(found, run("flagged", 1.0), commit=COMMIT, machine=warmer, command="").runs) == 2
    with pytest.raises(UsageError, match="flagged does not belong to the runs"):
        wall_time.added(found, run("flagged", 1.0), commit=COMMIT, machine=other, command="")


@IN_A_REPOSITORY
def test_a_file_of_another_commit_is_refused_before_anything_is_timed(tmp_path: Path) -> None:
    out = tmp_path / "wall.json"
    out.write_bytes(
        to_json(wall_time.added(None, run("identical", 14.0), commit="0" * 40, machine=MACHINE, command=""))
    )

    with pytest.raises(UsageError, match="has runs of another commit"):
        wall_time.measure(out, ["identical"], tmp_path, command="")


def test_warm_caches_are_not_claimed_where_nothing_warmed_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = Clone(folder=tmp_path, commit=COMMIT)

    with pytest.raises(UsageError, match="the caches are not warm"):
        clone.gate("clean-warm", PLANS["clean-warm"])

    (tmp_path / f"{COMMIT[:12]}-clean-cold.json").touch()
    stand_in(tmp_path, "flopwatch", "raise SystemExit(2)")
    with pytest.raises(UndecidedError, match="left no result"):
        clone.gate("clean-warm", PLANS["clean-warm"])
    monkeypatch.setattr(Clone, "sixty", lambda _clone: ["VectorAdd"])
    with pytest.raises(UndecidedError, match="left no result"):  # and it has emptied the caches
        clone.gate("clean-cold-60", PLANS["clean-cold-60"])
    with pytest.raises(UsageError, match="not warm for flagged-60"):
        clone.gate("flagged-60", PLANS["flagged-60"])


def stand_in(folder: Path, module: str, text: str) -> None:
    (folder / "tree" / "src").mkdir(parents=True, exist_ok=True)
    (folder / "tree" / "src" / f"{module}.py").write_text(text, encoding="utf-8")


GATE = """
import os, pathlib, sys
seen = pathlib.Path(os.environ["TRITON_CACHE_DIR"])
print("cold" if not seen.exists() else "warm", file=open("seen", "a"))
print("checking out 1 and 2", "compiling for h200", sep=chr(10), file=sys.stderr)
seen.mkdir(exist_ok=True)
pathlib.Path(sys.argv[-1]).write_bytes(pathlib.Path("result").read_bytes())
sys.exit(1)
"""


def test_a_clean_run_starts_with_an_empty_cache_and_warms_it_for_the_others(tmp_path: Path) -> None:
    stand_in(tmp_path, "flopwatch", GATE)
    (tmp_path / "tree" / "result").write_bytes(to_json(gate_result([verdict(1, Mark.SAME)])))
    (tmp_path / "triton").mkdir()
    clone = Clone(folder=tmp_path, commit=COMMIT)
    found = [clone.gate(name, PLANS[name])[0] for name in ("identical", "clean-cold", "flagged", "clean-warm")]

    assert (tmp_path / "tree" / "seen").read_text(encoding="utf-8").split() == ["warm", "cold", "warm", "warm"]
    assert [each.warm for each in found] == [False, False, True, True]
    assert {each.exit_code for each in found} == {1}
    assert all(each.seconds > 0 for each in found)
    assert {tuple(step.what for step in each.steps) for each in found} == {("starting", "checking out", "compiling")}
    assert all(sum(step.seconds for step in each.steps) == pytest.approx(each.seconds) for each in found)


def test_a_gate_that_leaves_no_result_is_an_error_with_its_exit_code(tmp_path: Path) -> None:
    stand_in(tmp_path, "flopwatch", "raise SystemExit(2)")

    with pytest.raises(UndecidedError, match="ended with exit code 2"):
        Clone(folder=tmp_path, commit=COMMIT).gate("identical", PLANS["identical"])


ASV = """
import pathlib, sys
assert "del MatmulSizes" in pathlib.Path("benchmarks/matmul.py").read_text()
print(pathlib.Path("table").read_text() if sys.argv[1] == "continuous" else "I will now ask")
sys.exit(sys.argv[1] == "continuous")
"""


@pytest.fixture
def asv_clone(checkout: Path) -> Clone:
    """Return a clone whose asv prints the file "table"."""
    stand_in(checkout, "asv", ASV)
    clone = Clone(folder=checkout, commit=COMMIT)
    (clone.tree / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "matmul.py", clone.tree / "benchmarks")
    for command in (["init", "--quiet"], ["add", "."]):
        git.git(*command, cwd=clone.tree)
    return clone


def test_asv_runs_on_the_selected_cases_and_the_suites_come_back(asv_clone: Clone) -> None:
    (asv_clone.tree / "table").write_text(ALL_ROWS, encoding="utf-8")
    found = asv_clone.asv()

    assert (found.compared, len(found.changed), found.exit_code) == (3, 1, 1)
    assert (asv_clone.tree / "benchmarks" / "matmul.py").read_bytes() == (ROOT / "benchmarks/matmul.py").read_bytes()


def test_an_asv_that_compares_nothing_is_an_error(asv_clone: Clone) -> None:
    (asv_clone.tree / "table").write_text("Traceback\nNo module named asv", encoding="utf-8")

    with pytest.raises(UndecidedError, match="No module named asv"):
        asv_clone.asv()


def timed(*runs: Run) -> WallTime:
    return WallTime(commit=COMMIT, date="2026-11-21", machine=MACHINE, commands=("python -m x",), runs=runs)


def test_the_page_holds_runs_against_their_goals() -> None:
    text = document._walls((timed(run("clean-cold", 177.1), run("flagged", 150.0), run("identical", 14.8)),))

    assert "One NVIDIA H200, 2026-11-21, driver 580.159.04, python 3.12.3" in text
    assert "commit a1b2c3d4e5f6" in text
    assert "| clean, cold caches | **177.1 s** |  | 150 s, missed | 110.0 s | 8 of 66 cases | 66 | 0 |" in text
    assert "| flagged, warm caches | **150.0 s** |  | 200 s, met |" in text
    assert "| identical, warm caches | **14.8 s** |  | 15 s, met | 0.0 s | none | 0 | 66 | 66 same | 0 |" in text
    assert "Not timed: clean-cold-60, beside-asv, clean-warm, flagged-60, identical-60, clean-warm-60." in text


def test_the_page_has_the_newest_run_of_a_name_and_how_long_those_before_it_took() -> None:
    runs = (run("flagged", 155.6), run("flagged", 154.4), run("identical", 10.4), run("flagged", 203.7))
    text = document._walls([timed(each) for each in runs])

    assert "| flagged, warm caches | **155.6 s** | 154.4 s, 203.7 s | 200 s, met |" in text
    assert text.count("| flagged, warm caches |") == 1
    assert "| identical, warm caches | **10.4 s** |  | 15 s, met |" in text


def test_the_page_says_what_the_time_went_into_where_that_is_known() -> None:
    steps = (Step(what="starting", seconds=0.52), Step(what="compiling", seconds=8.04))
    text = document._walls((timed(run("identical", 14.8), run("clean-warm-60", 131.0, measured=60, steps=steps)),))

    assert "| gate | starting | checking out | compiling | checking numbers | measuring |" in text
    assert "| clean, 60 cases, warm caches | 0.5 s |  | 8.0 s |  |  |" in text
    assert text.count("| identical, warm caches |") == 1


@pytest.mark.parametrize(
    "other",
    [
        run("clean-warm", 150.1),
        run("clean-warm", 15.0, measured=59),
        run("clean-warm", 100.0, exit_code=4),
        run("flagged", 100.0, exit_code=0),
        run("identical", 10.0, measured=1),
        run("clean-warm-60", 100.0, measured=59),
        run("flagged-60", 200.1),
    ],
)
def test_a_run_that_is_not_what_the_goal_speaks_of_does_not_meet_it(other: Run) -> None:
    assert not document._met(other)


def test_the_page_has_asv_beside_the_gate_and_what_it_called_changed() -> None:
    compared, changed = read_table(ALL_ROWS)
    asv = Asv(seconds=61.0, exit_code=0, compared=compared, changed=changed)
    text = document._walls((timed(run("beside-asv", 57.3, measured=14, marks={"same": 14}, asv=asv)),))

    assert "| clean, `-k 'Matmul['`, warm caches | **57.3 s** |  |" in text
    assert "| `flopwatch gate` | 57.3 s | 14 | 0 |\n| `asv continuous` | 61.0 s | 3 | 1 |" in text
    assert "'flopwatch')` from 1.62±0.01ms to 1.44±0.01ms, 0.89" in text


def test_every_goal_is_of_a_run() -> None:
    assert WALL_GOALS.keys() == PLANS.keys() - {"beside-asv"}
    assert {plan.head for plan in PLANS.values()} == HEADS.keys()


@pytest.mark.parametrize("path", sorted((ROOT / "evidence").glob("*/wall-*.json")), ids=lambda path: path.stem)
def test_the_kept_wall_times_are_whole_runs_on_a_gpu(path: Path) -> None:
    found = from_json(path.read_bytes(), WallTime)

    assert found.machine.gpu is not None
    assert not any(" -k " in command for command in found.commands)
    names = [each.name for each in found.runs]
    assert names == [name for name in PLANS if name in names]
    assert {COLD, COLD_60} & {*names}  # what the others found warm
    missing = [name for name in PLANS if name not in names]
    assert (f"Not timed: {', '.join(missing)}." in document._walls((found,))) == bool(missing)


def test_of_runs_that_were_timed_again_the_newest_are_shown() -> None:
    older = replace(timed(run("clean-cold", 255.0), run("identical", 17.5)), date="2026-11-22")
    text = document._walls((timed(run("identical", 14.8)), older))

    assert "| clean, cold caches | **255.0 s** |" in text
    assert re.findall(r"identical, \w+ caches \| \*\*([\d.]+) s", text) == ["14.8"]
    assert "Not timed: clean-cold-60, flagged, beside-asv" in text


def test_names_that_are_no_runs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        wall_time.main(["out.json", "--only", "identical,clean"])
    assert "no run is called 'clean'" in capsys.readouterr().err


@IN_A_REPOSITORY
def test_the_command_times_a_gate_of_the_identical_head(tmp_path: Path) -> None:
    # 10 s on 2 cores: one case, and without a GPU nothing but facts and small numbers.
    out, folder = tmp_path / "wall.json", tmp_path / "work"
    command = [sys.executable, "-m", "evidence.wall_time", str(out), "--only", "identical", "--folder", str(folder)]
    done = subprocess.run(
        [*command, "-k", "VectorAddSizes[65536"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = from_json(out.read_bytes(), WallTime)
    gate = json.loads(next(folder.glob("*-identical.json")).read_bytes())

    assert found.commit == gate["base"] == git.resolve("HEAD", cwd=ROOT)
    assert [(each.name, each.exit_code, each.warm) for each in found.runs] == [("identical", 0, False)]
    assert sum(found.runs[0].marks.values()) == len(gate["verdicts"]) == 1
    assert found.runs[0].seconds > gate["seconds"]
    tree = folder / "tree"
    assert {*HEADS, BASE} <= set(git.git("branch", "--format=%(refname:short)", cwd=tree).split())
    assert git.git("diff", "--numstat", f"{BASE}...identical", cwd=tree) == f"1\t0\t{KERNELS}/matmul.py"
    assert git.git("log", "--format=%s", f"{BASE}..flagged", cwd=tree) == "flagged"
