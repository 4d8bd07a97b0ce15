"""The sandbox by rootless podman, where it is installed: what its command line alone does not show."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from runner import sandbox
from runner.sandbox import Config, Refused
from tests.runner.probe import PROBE, probed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME = "flopwatch-test"
PYTHON = "/usr/bin/python3"
_command = sandbox.podman_command


def podman(*arguments: str) -> str:
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=True).stdout.strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """Podman with an image.

    Attributes:
        config: settings with which it works here.
    """

    config: Config

    def command(self, program: Sequence[str]) -> list[str]:
        return sandbox.podman_command(self.config, program, name=NAME)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Make an image that is empty but for the host's /usr, and leave the GPU out, which no test needs."""
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    if os.geteuid() == 0:
        pytest.skip("this is root: podman is tried without, as a runner has it")
    if not Path(PYTHON).exists():
        pytest.skip(f"no {PYTHON}")
    home = tmp_path_factory.mktemp("home")
    session, apart = Path(os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")), tmp_path_factory.mktemp("run")
    for name in ("bus", "systemd"):  # cgroups are had from the user's session; all else stays apart from it
        (apart / name).symlink_to(session / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_RUNTIME_DIR", str(apart))
        patch.setattr(sandbox, "podman_command", _without_gpu)
        config = Config(
            image=f"localhost/{NAME}@{_make_image(home)}",
            scratch_bytes=32 * 2**20,
            memory_bytes=256 * 2**20,
            processes=64,
            wall_s=60,
        )
        engine = Engine(config=config)
        check = subprocess.run(engine.command(["true"]), capture_output=True, text=True, check=False)
        if check.returncode:
            pytest.skip(f"podman does not work here: {check.stderr.strip()}")
        yield engine
        podman("rmi", "--force", NAME)
        podman("system", "migrate")  # ends the process that keeps its namespaces


def _make_image(folder: Path) -> str:
    with tarfile.open(folder / "root.tar", "w") as archive:
        for name in ("usr", "program", "scratch", "tmp"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name in ("bin", "sbin", "lib", "lib64"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            archive.addfile(entry)
    done = subprocess.run(
        ["podman", "import", "--quiet", str(folder / "root.tar"), NAME], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"podman does not work here: {done.stderr.strip()}")
    return podman("images", "--format", "{{.Digest}}", NAME)


def _without_gpu(config: Config, program: Sequence[str], *, name: str) -> list[str]:
    words = _command(config, program, name=name)
    at = words.index("--device")
    return [*words[:at], "--volume", "/usr:/usr:ro", *words[at + 2 :]]


@pytest.fixture
def launcher(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Let the launcher take podman, also on a machine whose cgroups would make it refuse."""
    monkeypatch.setattr(sandbox, "load_config", lambda *_, **__: engine.config)
    monkeypatch.setattr(sandbox, "require_limits", lambda: None)
    return engine


def test_inside_is_nothing_of_the_host(engine: Engine) -> None:
    found = probed(engine.command([PYTHON, "-I", "-c", PROBE, "22"]))

    # What podman itself sets, and makes of the image.
    assert set(found.pop("environment")) - {*sandbox.variables(engine.config, "podman")} <= {
        "HOSTNAME",
        "TERM",
        "container",
    }
    linked, made = {"bin", "lib", "lib64", "sbin"}, {"dev", "etc", "proc", "run", "sys"}
    assert set(found.pop("top")) <= {"program", "scratch", "tmp", "usr"} | linked | made
    assert set(found.pop("etc")) <= {"group", "hostname", "hosts", "mtab", "passwd", "resolv.conf"}
    assert found.pop("dev") in {"OSError", "PermissionError"}
    assert found == {
        "internet": "OSError",
        "host": "ConnectionRefusedError",
        "interfaces": ["lo"],
        "usr": "OSError",
        "root": "OSError",
        "program": "OSError",
        "sys": "OSError",
        "processes": 1,
        "namespace": -1,
        "capabilities": ["0000000000000000"] * 5,
        "new_privileges": ["1"],
        "name": "flopwatch",
        "user": 1000,
        "scratch": "done",
        "full": "OSError",
        "disks": [],
    }


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--network", "none"), {"host": "done"}),
        (("podman", "unshare"), {"namespace": 0}),
    ],
)
def test_the_probe_sees_what_an_option_would_leave_open(
    engine: Engine, options: tuple[str, str], found: dict[str, Any]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = engine.command([PYTHON, "-I", "-c", PROBE, str(server.getsockname()[1])])
        closed = probed(words)
        if options == ("podman", "unshare"):
            podman("system", "migrate")  # what was forbidden before stays so as long as its namespace
            opened = probed(words[words.index("run") - 1 :])
        else:
            at = words.index(options[0])
            opened = probed([*words[:at], "--network", "host", *words[at + 2 :]])

    assert {name: opened[name] for name in found} == found
    assert {name: closed[name] for name in found} != found


def test_memory_and_processes_are_limited(engine: Engine) -> None:
    try:
        sandbox.require_limits()
    except Refused as refusal:
        pytest.skip(" ".join(refusal.lines))
    read = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.swap.max /sys/fs/cgroup/pids.max"

    done = subprocess.run(engine.command(["sh", "-c", read]), capture_output=True, text=True, check=True)

    assert done.stdout.split() == [str(engine.config.memory_bytes), "0", str(engine.config.processes)]


def test_a_trial_goes_in_and_its_result_comes_out(
    launcher: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "program"
    folder.mkdir(mode=0o755)
    (folder / "trial.py").write_text("import sys\nsys.stdout.write(' '.join([*sys.argv[1:], sys.stdin.read()]))\n")
    monkeypatch.setattr(sandbox, "PROGRAM", folder / "trial.py")
    (tmp_path / "trial.tar").write_text("the trial")
    result = tmp_path / "result"

    code = sandbox.main(["gate", str(tmp_path / "trial.tar"), str(result)])

    assert launcher.config.wall_s == 60
    assert (code, result.read_text(), result.stat().st_mode & 0o777) == (0, "gate 60 the trial", 0o600)


def test_when_the_time_is_up_nothing_is_left(engine: Engine) -> None:
    command = engine.command(["sh", "-c", "sleep 986 & sleep 986"])

    def stop() -> None:
        podman("rm", "--force", "--ignore", "--time", "0", NAME)

    with pytest.raises(Refused, match=r"stopped after 5 s") as refusal, Path(os.devnull).open("rb") as trial:
        sandbox.run(command, trial, wall_s=5, limit=100, log=io.StringIO(), stop=stop)

    assert refusal.value.code == 3
    assert podman("ps", "--all", "--quiet") == ""
    assert subprocess.run(["pgrep", "-f", "sleep 986"], check=False, capture_output=True).stdout == b""
