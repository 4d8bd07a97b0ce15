from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import triton
from triton import Config
from triton.runtime.autotuner import Autotuner

from flopwatch.measure.inputs import make_inputs
from flopwatch.measure.protocol import Mode
from flopwatch.measure.tuning import TunerLog, config_text
from flopwatch.model import Case, Choice
from flopwatch.static import pretend_gpu
from flopwatch.tune.client import in_config
from flopwatch.tune.space import settings_of
from flopwatch.tune.worker import LeftOut, TuneSession, _require_kept, configured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def hook(_arguments: dict[str, Any]) -> None:
    pass


OWN = [
    Config({"B": 64, "EVEN": True, "ACT": "relu"}, num_warps=4),
    Config({"B": 128, "EVEN": True, "ACT": "relu"}, num_warps=8, pre_hook=hook),
]


def asked(number: int, **changes: str) -> Any:  # noqa: ANN401 - untyped triton
    wanted = {**settings_of(config_text(OWN[number])), **changes}
    return configured(OWN, ", ".join(f"{name}: {value}" for name, value in wanted.items()))


def test_a_configuration_of_the_list_is_found_by_its_text() -> None:
    assert config_text(asked(1)) == config_text(OWN[1])
    assert asked(1).pre_hook is hook
    assert asked(0).pre_hook is None


def test_a_value_may_have_commas() -> None:
    tiles = [Config({"TILE": (64, width)}, num_warps=4) for width in (32, 128)]
    assert [configured(tiles, config_text(tile)).kwargs for tile in tiles] == [{"TILE": (64, 32)}, {"TILE": (64, 128)}]
    wide = configured(tiles, config_text(tiles[1]).replace("num_warps: 4", "num_warps: 8"))
    assert (wide.kwargs, wide.num_warps) == ({"TILE": (64, 128)}, 8)


def test_what_differs_is_set_with_its_type_and_the_list_stays_as_it_was() -> None:
    found = asked(1, B="256", EVEN="False", ACT="gelu", maxnreg="128")
    assert found.kwargs == {"B": 256, "EVEN": False, "ACT": "gelu"}
    assert (found.num_warps, found.maxnreg, found.pre_hook) == (8, 128, hook)
    assert OWN[1].kwargs == {"B": 128, "EVEN": True, "ACT": "relu"}
    assert (OWN[1].num_warps, OWN[1].maxnreg) == (8, None)


def test_a_rule_of_the_kernel_is_asked_beside_its_list_because_it_keeps_all_where_it_would_leave_none() -> None:
    def wide(configs: list[Config], given: dict[str, int], **_: object) -> list[Config]:
        return [config for config in configs if config.kwargs["B"] > given["n"]] or configs

    tuner = SimpleNamespace(configs=OWN, arg_names=["x", "n"], early_config_prune=wide)
    with pytest.raises(LeftOut, match="early_config_prune"):
        _require_kept(tuner, asked(0, B="32"), ("pointer", 64), {})
    _require_kept(tuner, asked(0, B="256"), ("pointer", 64), {})
    _require_kept(SimpleNamespace(configs=OWN, early_config_prune=None), asked(0, B="32"), (), {})


@pytest.fixture
def folder(tuned_repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The suites, to be imported into this process; afterwards nothing of them is left in it."""
    monkeypatch.setattr(Autotuner, "run", Autotuner.run)
    monkeypatch.setattr(sys, "path", [str(tuned_repository / "src"), *sys.path])
    yield tuned_repository / "tuned_suites"
    for name in [name for name in sys.modules if name.partition(".")[0] in {"tunedkernels", "tuned_suites"}]:
        del sys.modules[name]


def test_a_provider_runs_in_its_configuration_and_the_tuners_log_says_so(folder: Path) -> None:
    """As on a GPU: two configurations of one kernel take turns in one process, one of them not in its list."""
    log = TunerLog()
    log.install()
    session = TuneSession(Mode.INTERPRET, folder, "h200")
    case = Case(suite="Scale", values=("5000", "flopwatch"))
    listed, foreign = (
        f"BLOCK: {block}, num_warps: {warps}, num_ctas: 1, num_stages: 3, maxnreg: None"
        for block, warps in ((512, 4), (1024, 8))
    )
    log.start()
    seen = []
    with pretend_gpu("h200", tensors="cpu" if triton.knobs.runtime.interpret else "meta") as recorder:
        for config in (listed, foreign, listed):
            suite = session.suite(in_config(case, config))
            suite.call(suite.own_provider)(*make_inputs(suite, in_config(case, config), 0))
            seen.append((recorder.launches[-1].grid, log.choices))
    assert [grid for grid, _ in seen] == [(10,), (5,), (10,)]
    assert [choices for _, choices in seen] == [
        (Choice(kernel="one_kernel", config=config),) for config in (listed, foreign, listed)
    ]


def test_a_provider_that_the_suite_has_is_not_touched(folder: Path) -> None:
    session = TuneSession(Mode.INTERPRET, folder, "h200")
    suite = session.suite(Case(suite="Square", values=("float16", "512x512", "torch")))
    assert suite.own_provider == "flopwatch"
    assert "run" not in vars(suite)
