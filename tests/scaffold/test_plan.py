from __future__ import annotations

import json
import re
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.scaffold.conftest import ADD, ADD_KERNEL, HEAD

from flopwatch.config import load_config
from flopwatch.errors import GitError
from flopwatch.scaffold import Action, Scaffold, plan_scaffold, write_files
from flopwatch.scaffold.requirement import requirement
from flopwatch.scaffold.trial import Outcome
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.scaffold.conftest import Stranger

    Make = Callable[[Mapping[str, str]], Stranger]


@pytest.fixture(autouse=True)
def _untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the trials out, which tests of their own run: every launch function becomes a template."""
    monkeypatch.setattr(
        "flopwatch.scaffold.plan.find_suite",
        lambda launchers, *_arguments, **_options: Outcome(launcher=next(iter(launchers), None), reasons=("untried",)),
    )


def by_hand(scaffold: Scaffold) -> dict[str, str]:
    return {file.path: file.by_hand for file in scaffold.files if file.by_hand}


def actions(scaffold: Scaffold) -> dict[str, Action]:
    return {file.path: file.action for file in scaffold.files}


def test_everything_is_created_in_a_bare_repository_and_a_second_run_changes_nothing(stranger: Make) -> None:
    repository = stranger({"src/mk/__init__.py": ADD})
    before = repository.contents()
    scaffold = plan_scaffold(repository.root)
    assert repository.contents() == before
    write_files(scaffold.root, scaffold.files)
    written = repository.contents()
    assert set(actions(scaffold)) == set(written) - set(before)
    assert load_config(repository.root).packages == ("mk",)

    again = plan_scaffold(repository.root)
    assert set(actions(again).values()) == {Action.KEEP}
    assert by_hand(again) == {}
    write_files(again.root, again.files)
    assert repository.contents() == written


def test_no_file_of_the_stranger_is_changed_and_what_to_add_is_said(stranger: Make) -> None:
    own = {
        "noxfile.py": "import nox\n",
        "asv.conf.json": '{\n    // old\n    "version": 1,\n    "benchmark_dir": "perf"\n}\n',
        ".gitignore": "*.o\n",
        "benchmarks/bench_add.py": "raise SystemExit('a script')\n",
        "mk/__init__.py": ADD,
    }
    repository = stranger(own)
    scaffold = plan_scaffold(repository.root)
    write_files(scaffold.root, scaffold.files)
    contents = repository.contents()
    assert {path: contents[path].decode() for path in own} == own
    said = by_hand(scaffold)
    assert set(said) == {"noxfile.py", "asv.conf.json", ".gitignore"}
    assert "def gate(session)" in said["noxfile.py"]
    assert json.loads(said["asv.conf.json"])["plugins"] == [".flopwatch.asv.plugin"]
    assert load_config(repository.root).benchmarks == "perf"


def test_suites_do_not_go_where_programs_are(stranger: Make) -> None:
    repository = stranger({"mk/__init__.py": ADD, "benchmarks/run.py": "raise SystemExit\n"})
    scaffold = plan_scaffold(repository.root)
    assert "flopwatch_suites/add.py" in actions(scaffold)
    write_files(scaffold.root, scaffold.files)
    assert load_config(repository.root).benchmarks == "flopwatch_suites"
    assert discover(repository.root / "flopwatch_suites").failures == {}


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("", "no function with @triton.jit was found in the packages"),
        (HEAD + ADD_KERNEL, "no Python function of the packages launches a kernel; there are add_kernel (mk.py:7)"),
    ],
)
def test_without_a_launch_function_the_suite_is_a_template_that_says_why(source: str, why: str, stranger: Make) -> None:
    repository = stranger({"mk.py": source})
    scaffold = plan_scaffold(repository.root)
    template = next(file.text for file in scaffold.files if file.path == "benchmarks/first.py")
    assert f"#   {why}\n" in template
    uncommented = "\n".join(
        line.removeprefix("#").removeprefix(" ") for line in template.partition("three dots.\n")[2].splitlines()
    )
    compile(uncommented, "template", "exec")
    assert scaffold.todo[0] == "Fill in benchmarks/first.py: it is a template; the reasons are in it."


def test_the_workflow_and_the_sessions_install_what_can_be_installed(stranger: Make) -> None:
    repository = stranger({"mk.py": ADD, "setup.py": ""})
    scaffold = plan_scaffold(repository.root)
    texts = {file.path: file.text for file in scaffold.files}
    assert f"pip install . {shlex.quote(requirement())}\n" in texts[".github/workflows/flopwatch.yml"]
    assert f'session.install("--editable", ".", "{requirement("history")}")' in texts["noxfile.py"]
    compile(texts["noxfile.py"], "noxfile.py", "exec")
    assert json.loads(texts["asv.conf.json"])["benchmark_dir"] == "benchmarks"
    assert not re.search(r"@[A-Z]+@", texts["noxfile.py"])
    assert any("--no-build-isolation" in line for line in scaffold.todo)


@pytest.mark.parametrize(
    ("files", "folder"),
    [({}, "benchmarks"), ({"benchmarks/run.py": "print(1)\n"}, "flopwatch_suites")],
)
def test_the_workflow_annotates_the_suites(files: dict[str, str], folder: str, stranger: Make) -> None:
    scaffold = plan_scaffold(stranger({"mk.py": ADD} | files).root)
    texts = {file.path: file.text for file in scaffold.files}
    assert f"--format annotations --suites {folder}\n" in texts[".github/workflows/flopwatch.yml"]


def test_a_branch_of_any_name_is_quoted(stranger: Make) -> None:
    repository = stranger({"mk.py": ADD})
    repository.git("branch", "-m", "it's#1")
    texts = {file.path: file.text for file in plan_scaffold(repository.root).files}
    assert 'branches: ["it\'s#1"]\n' in texts[".github/workflows/flopwatch.yml"]
    assert json.loads(texts["asv.conf.json"])["branches"] == ["it's#1"]


def test_a_folder_in_no_repository_is_told_so(stranger: Make) -> None:
    repository = stranger({"mk.py": ADD})
    shutil.rmtree(repository.root / ".git")
    with pytest.raises(GitError, match="is in no git repository") as caught:
        plan_scaffold(repository.root)
    assert "git init" in caught.value.todo


def test_a_repository_without_a_commit_is_scaffolded(tmp_path: Path, stranger: Make) -> None:
    repository = stranger({"mk.py": ADD})
    shutil.rmtree(repository.root / ".git")
    repository.git("init", "-q", "-b", "trunk")
    scaffold = plan_scaffold(repository.root)
    assert (scaffold.layout.packages, scaffold.layout.main) == (("mk",), "trunk")
    assert tmp_path in scaffold.root.parents


def test_windows_line_ends_are_read_and_kept(stranger: Make) -> None:
    repository = stranger({"mk.py": ADD.replace("\n", "\r\n"), "pyproject.toml": "[tool.x]\r\n"})
    scaffold = plan_scaffold(repository.root)
    assert [kernel.name for kernel in scaffold.kernels] == ["add_kernel"]
    write_files(scaffold.root, scaffold.files)
    text = (repository.root / "pyproject.toml").read_bytes()
    assert text.startswith(b"[tool.x]\r\n")
    assert text.count(b"\n") == text.count(b"\r\n")
