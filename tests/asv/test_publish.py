from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.asv.conftest import succeed
from tests.asv.scale import add_commit, write_history

if TYPE_CHECKING:
    from pathlib import Path

    from tests.asv.conftest import Recorded

#: Fails when the pages are half built.
FAILING_PLUGIN = """
from asv.publishing import OutputPublisher

class Failing(OutputPublisher):
    name, button_label, description, order = "failing", "failing", "failing", 2

    @classmethod
    def publish(cls, *_):
        raise RuntimeError("planted")
"""


#: asv lists regressions in the order of a set.
SAME_ORDER = {"PYTHONHASHSEED": "0"}


@pytest.fixture
def made_up(repository: Recorded) -> Recorded:
    """Sixty commits of made-up results, published once."""
    folder = repository.root.with_name("made-up")
    write_history(folder, commits=60, cases=2)
    made_up = type(repository)(root=folder, home=repository.home)
    succeed(made_up.asv("publish", "--no-pull", env=SAME_ORDER))
    return made_up


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_publish_that_fails_leaves_the_pages_as_they_were(made_up: Recorded) -> None:
    before = files(made_up.root / "html")
    made_up.write("failing.py", FAILING_PLUGIN)
    conf = json.loads((made_up.root / "asv.conf.json").read_text())
    made_up.write("asv.conf.json", json.dumps(conf | {"plugins": [*conf["plugins"], ".failing"]}))

    failed = made_up.asv("publish", "--no-pull", env={"PYTHONPATH": str(made_up.root)})

    assert failed.returncode != 0
    assert "planted" in failed.stdout
    assert files(made_up.root / "html") == before
    assert [path.name for path in made_up.root.iterdir() if ".html" in path.name] == []


def test_a_second_publish_of_the_same_results_gives_the_same_pages(made_up: Recorded) -> None:
    before = files(made_up.root / "html")

    succeed(made_up.asv("publish", "--no-pull", env=SAME_ORDER))

    differing = {name for name, content in files(made_up.root / "html").items() if before.get(name) != content}
    assert differing <= {"info.json"}  # which has the time
    assert (made_up.root / ".flopwatch" / "changes.json").is_file()


def test_one_more_commit_is_one_more_point_of_each_graph(made_up: Recorded) -> None:
    def points(name: str) -> dict[str, int]:
        graphs = (made_up.root / "html" / "graphs").rglob(f"{name}.json")
        return {str(path): len(json.loads(path.read_bytes())) for path in graphs}

    before = points("matmul.Matmul.track_time")

    add_commit(made_up.root)
    succeed(made_up.asv("publish", "--no-pull"))

    assert len(before) > 0
    assert points("matmul.Matmul.track_time") == {path: number + 1 for path, number in before.items()}


def test_what_was_recorded_of_a_pull_request_is_not_published(made_up: Recorded) -> None:
    def shown() -> dict[str, bytes]:
        left_out = {"info.json", "index.json"}  # which have the time, and a number for each commit with a result
        return {name: text for name, text in files(made_up.root / "html").items() if name not in left_out}

    before = shown()
    main = made_up.git("rev-parse", "main")
    add_commit(made_up.root)
    made_up.git("branch", "pull-request")
    made_up.git("update-ref", "refs/heads/main", main)
    recorded = made_up.git("rev-parse", "pull-request")
    assert len(made_up.result_files(recorded)) == 1

    said = succeed(made_up.asv("publish", "--no-pull", env=SAME_ORDER))

    assert f"Couldn't find {recorded[:8]} in branches (main)" in said
    assert shown() == before


def test_another_folder_can_be_asked_for(made_up: Recorded, tmp_path: Path) -> None:
    succeed(made_up.asv("publish", "--no-pull", "--html-dir", str(tmp_path / "elsewhere")))

    assert (tmp_path / "elsewhere" / "changes.html").is_file()


def test_the_roofline_is_published_for_a_gpu_whose_peaks_are_known(made_up: Recorded) -> None:
    benchmarks = made_up.page("index.json")["benchmarks"]

    assert {name.rpartition(".")[2] for name in benchmarks} >= {"tflops", "bandwidth", "roofline", "track_time"}
    assert [name for name, benchmark in benchmarks.items() if {"flops", "bytes_moved"} & benchmark.keys()] == []


def test_a_suite_that_was_never_run_is_not_shown(made_up: Recorded) -> None:
    path = made_up.root / "results" / "benchmarks.json"
    benchmarks = json.loads(path.read_bytes())
    never = {
        name.replace("matmul.Matmul", "never.Never"): {
            **benchmark,
            "name": name.replace("matmul.Matmul", "never.Never"),
        }
        for name, benchmark in benchmarks.items()
        if name.startswith("matmul.")
    }
    path.write_text(json.dumps(benchmarks | never), encoding="utf-8")

    succeed(made_up.asv("publish", "--no-pull"))

    shown = made_up.page("index.json")["benchmarks"]
    assert len(never) == 6
    assert {name.partition(".")[0] for name in shown} == {"matmul", "attention", "softmax", "layernorm", "scan"}
    grid = {path.stem for path in (made_up.root / "html" / "graphs" / "summary").glob("*.json")}
    assert grid >= shown.keys()
