from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from runner import sandbox
from runner.sandbox import Config, Refused
from tests.runner.probe import PROBE, probed

DIGEST = "localhost/flopwatch@sha256:" + "a" * 64


def write(path: Path, text: str, *, mode: int = 0o644) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def load(path: Path) -> Config:
    return sandbox.load_config(path, owner=os.getuid())


def here(program: str, **options: Any) -> bytes:  # noqa: ANN401 - those of `sandbox.run`
    """Run a program of Python as if it were an engine."""
    defaults: dict[str, Any] = {"wall_s": 20, "limit": 100, "log": io.StringIO()}
    with Path(os.devnull).open("rb") as trial:
        return sandbox.run([sys.executable, "-c", program], trial, **defaults | options)


@pytest.fixture
def bubblewrap() -> Config:
    """Return settings with which bubblewrap works here."""
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    config = Config(environment="/usr", scratch_bytes=32 * 2**20)
    done = subprocess.run(
        sandbox.bubblewrap_command(config, ["true"], devices=[]), capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"bubblewrap does not work here: {done.stderr.strip()}")
    return config


@pytest.fixture
def python() -> str:
    """Return an interpreter that a sandbox sees."""
    found = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    if found is None:
        pytest.skip("no Python below /usr")
    return found


def test_the_installed_settings_are_valid() -> None:
    config = load(Path(sandbox.__file__).with_name("sandbox.toml"))

    assert (config.engine, config.environment, config.machine) == ("auto", "/opt/flopwatch", "h200")


def test_every_wrong_setting_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "sandbox.toml", 'engin = "podman"\ngpu = "0"\nwall_s = true\n')

    with pytest.raises(Refused) as refusal:
        load(path)

    text = "\n".join(refusal.value.lines)
    assert [
        word for word in ("engin: no such key", "gpu: '0' is no int", "wall_s: True is no int") if word not in text
    ] == []


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ('engine = "docker"', "engine"),
        ('engine = "podman"', "image: missing"),
        ('image = "localhost/flopwatch:latest"', "by digest"),
        ('image = "--privileged"', "by digest"),
        ('environment = "/opt/../root"', "environment"),
        ('environment = "/"', "environment"),
        ('environment = "/a:/b"', "environment"),
        ('machine = "a b"', "machine"),
        ("gpu = -1", "gpu"),
        ("wall_s = 0", "wall_s"),
    ],
)
def test_a_setting_that_would_open_the_sandbox_is_refused(tmp_path: Path, setting: str, problem: str) -> None:
    with pytest.raises(Refused) as refusal:
        load(write(tmp_path / "sandbox.toml", setting))

    assert problem in "\n".join(refusal.value.lines)


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_settings_that_others_can_write_are_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(Refused, match="can be written by others"):
        load(write(tmp_path / "sandbox.toml", "", mode=mode))


def test_settings_of_another_owner_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "sandbox.toml", "")

    with pytest.raises(Refused, match="can be written by others"):
        sandbox.load_config(path, owner=os.getuid() + 1)


def test_settings_behind_a_link_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write(tmp_path / "sandbox.toml", ""))

    with pytest.raises(Refused, match="can be written by others"):
        load(tmp_path / "link")


def test_missing_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is missing"):
        load(tmp_path / "sandbox.toml")


@pytest.mark.parametrize(
    ("config", "installed", "engine"),
    [
        (Config(image=DIGEST), {"podman", "bwrap"}, "podman"),
        (Config(), {"podman", "bwrap"}, "bubblewrap"),
        (Config(image=DIGEST), {"bwrap"}, "bubblewrap"),
        (Config(image=DIGEST, engine="bubblewrap"), {"podman", "bwrap"}, "bubblewrap"),
    ],
)
def test_the_engine_is_what_is_asked_for_and_there(
    config: Config, installed: set[str], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "bubblewrap_version", lambda _: (0, 11, 0))

    assert sandbox.choose_engine(config, which=lambda name: name if name in installed else None) == engine


@pytest.mark.parametrize("config", [Config(), Config(engine="podman", image=DIGEST), Config(engine="bubblewrap")])
def test_without_an_engine_the_machine_is_unfit(config: Config) -> None:
    with pytest.raises(Refused) as refusal:
        sandbox.choose_engine(config, which=lambda _: None)

    assert refusal.value.code == 4


def test_an_old_bubblewrap_is_refused(tmp_path: Path) -> None:
    program = write(tmp_path / "bwrap", "#!/bin/sh\necho bubblewrap 0.4.1\n", mode=0o755)

    with pytest.raises(Refused, match=r"0\.4\.1 is too old"):
        sandbox.choose_engine(Config(), which=lambda name: str(program) if name == "bwrap" else None)


def test_podman_is_refused_where_it_would_ignore_its_limits(tmp_path: Path) -> None:
    controllers, bus = tmp_path / "cgroup.controllers", tmp_path / str(os.geteuid()) / "bus"
    with pytest.raises(Refused, match="cannot limit memory and processes") as old:
        sandbox.require_limits(controllers, tmp_path)
    controllers.touch()
    with pytest.raises(Refused, match="cannot limit memory and processes") as alone:
        sandbox.require_limits(controllers, tmp_path)
    bus.parent.mkdir()
    bus.touch()
    sandbox.require_limits(controllers, tmp_path)

    assert (old.value.code, alone.value.code) == (4, 4)
    assert old.value.lines[1] == f"  why: cgroups of version 2 are not there: no {controllers}"
    assert alone.value.lines[1] == f"  why: this user has no session of systemd: no {bus}"


def test_podman_is_not_started_where_it_would_ignore_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise Refused("no limits", code=4)

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sandbox, "choose_engine", lambda _: "podman")
    monkeypatch.setattr(sandbox, "require_limits", refuse)
    monkeypatch.setattr(sandbox, "run", lambda *_, **__: pytest.fail("it was started"))
    config = write(tmp_path / "sandbox.toml", f'image = "{DIGEST}"\n')
    trial = write(tmp_path / "trial.tar", "x")

    code = sandbox.main(["gate", str(trial), str(tmp_path / "result")], config_path=config, owner=config.stat().st_uid)

    assert (code, capsys.readouterr().err) == (4, "no limits\n")


def test_podman_gets_no_network_no_rights_and_nothing_to_write_but_memory() -> None:
    command = sandbox.podman_command(Config(image=DIGEST), ["python3", "x"], name="n")
    text = " ".join(command)

    for option in (
        "--network none",
        "--read-only",
        "--cap-drop all",
        "--security-opt no-new-privileges",
        "--pull never",
        "--http-proxy=false",
        "--pids-limit 4096",
        "--user 1000:1000",
        "--device nvidia.com/gpu=0",
        "--timeout 2400",
    ):
        assert option in text
    assert [command[place + 1] for place, word in enumerate(command) if word in {"--volume", "-v", "--mount"}] == [
        f"{sandbox.PROGRAM.parent}:/program:ro"
    ]
    assert command[-4:] == ["--entrypoint", "python3", DIGEST, "x"]
    assert command[:6] == ["podman", "unshare", "sh", "-c", sandbox.NO_NAMESPACES, "sh"]


def test_bubblewrap_binds_nothing_that_can_be_written_but_devices() -> None:
    command = sandbox.bubblewrap_command(Config(), ["x"], devices=["/dev/nvidia0"])
    bound = [command[place + 1] for place, word in enumerate(command) if word in {"--bind", "--bind-try", "--dev-bind"}]

    assert bound == ["/dev/nvidia0"]
    assert not {"--share-net", "--cap-add", "--dev-bind-try"} & set(command)


def test_inside_is_nothing_of_the_host(bubblewrap: Config, python: str) -> None:
    command = sandbox.bubblewrap_command(bubblewrap, [python, "-I", "-c", PROBE, "22"], devices=[])

    assert probed(command) == {
        "environment": sorted([*sandbox.variables(bubblewrap, "bubblewrap"), "PWD"]),
        "internet": "OSError",
        "host": "ConnectionRefusedError",
        "interfaces": ["lo"],
        "usr": "OSError",
        "root": "OSError",
        "dev": "OSError",
        "program": "OSError",
        "sys": "OSError",
        "top": sorted(["bin", "dev", "etc", "lib", "lib64", "proc", "program", "sbin", "sys", "tmp", "usr", "scratch"]),
        "etc": [name for name in ("alternatives", "ld.so.cache") if Path("/etc", name).exists()],
        "processes": 2,
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
        (["--unshare-net"], {"host": "done"}),
        (["--disable-userns"], {"namespace": 0}),
        (["--unshare-pid"], {"name": "flopwatch"}),
    ],
)
def test_the_probe_sees_what_an_option_would_leave_open(
    bubblewrap: Config, python: str, options: list[str], found: dict[str, Any]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        command = sandbox.bubblewrap_command(bubblewrap, [python, "-I", "-c", PROBE, port], devices=[])
        open_one = probed([word for word in command if word not in options])
        closed = probed(command)

    assert {name: open_one[name] for name in found} == found
    if options == ["--unshare-pid"]:
        assert open_one["processes"] > closed["processes"] == 2
    else:
        assert {name: closed[name] for name in found} != found


def test_when_the_time_is_up_all_that_it_ran_is_killed(bubblewrap: Config) -> None:
    command = sandbox.bubblewrap_command(bubblewrap, ["sh", "-c", "sleep 987 & sleep 987"], devices=[])

    with pytest.raises(Refused, match=r"stopped after 0\.5 s") as refusal, Path(os.devnull).open("rb") as trial:
        sandbox.run(command, trial, wall_s=0.5, limit=100, log=io.StringIO())

    deadline = time.monotonic() + 5
    while (left := _running("sleep 987")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (refusal.value.code, left) == (3, [])


def _running(words: str) -> list[str]:
    lines = subprocess.run(["ps", "-e", "-o", "args="], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if line.strip() == words]


def test_the_result_is_what_it_writes_to_stdout() -> None:
    log = io.StringIO()

    data = here("import sys; sys.stdout.write('result'); sys.stderr.write('progress')", log=log)

    assert data == b"result"
    assert log.getvalue().splitlines()[1] == "| progress"


@pytest.mark.parametrize(
    ("program", "options", "why"),
    [
        ("pass", {}, "ended without a result"),
        ("import time; time.sleep(60)", {"wall_s": 0.3}, r"stopped after 0\.3 s"),
        ("while True: print('x' * 999)", {}, "more than 100 bytes"),
        ("import sys; print('x'); sys.stdout.close(); import time; time.sleep(60)", {"wall_s": 0.5}, "stopped"),
    ],
)
def test_a_sandbox_without_a_proper_result_is_refused(program: str, options: dict[str, Any], why: str) -> None:
    stopped: list[bool] = []

    with pytest.raises(Refused, match=why) as refusal:
        here(program, **options, stop=lambda: stopped.append(True))

    assert (refusal.value.code, stopped) == (3, [True])


def test_the_runner_obeys_nothing_in_the_log() -> None:
    log = io.StringIO()
    hostile = "::add-mask::x\\n ::set-output name=a::b\\n##[error]boo\\n\\x1b]0;title\\x07\\r::warning::over\\n"

    here(f"import sys; sys.stderr.write('{hostile}'); print(1)", log=log)
    first, *lines, last = log.getvalue().splitlines()

    assert first.startswith("::stop-commands::")
    assert last == f"::{first.removeprefix('::stop-commands::')}::"
    assert lines == [
        "| ::add-mask::x",
        "|  ::set-output name=a::b",
        "| # #[error]boo",
        "| ?]0;title??::warning::over",
    ]


def test_the_word_that_ends_the_silence_is_not_known_inside() -> None:
    log = io.StringIO()

    inside = here("import os; print(dict(os.environ))", log=log, limit=10**6).decode()

    assert log.getvalue().splitlines()[0].removeprefix("::stop-commands::") not in inside
    assert set(eval(inside)) <= {"PATH", "LC_CTYPE", *sandbox.ENGINE_VARIABLES}  # noqa: S307 - a dict of our own


def test_a_long_log_is_cut_and_does_not_block() -> None:
    log = io.StringIO()
    with io.BytesIO(b"x" * 10_000 + b"\n") as source:
        sandbox.copy_log(source, log, limit=5_000)

    assert [len(line) for line in log.getvalue().splitlines()[:2]] == [2002, 2002]
    assert log.getvalue().splitlines()[2:] == ["flopwatch-sandbox: 5001 more bytes of log are not shown"]


def test_only_a_plain_file_is_a_trial(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write(tmp_path / "file", "x"))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    write(tmp_path / "empty", "")

    for name in ("link", "pipe", "folder", "empty", "absent"):
        with pytest.raises(Refused), sandbox.open_trial(tmp_path / name):
            pass
    with sandbox.open_trial(tmp_path / "file") as file:
        assert file.read() == b"x"


def test_a_trial_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "TRIAL_BYTES", 3)

    with pytest.raises(Refused, match="has 4 bytes"), sandbox.open_trial(write(tmp_path / "file", "four")):
        pass


def test_a_result_never_writes_over_anything(tmp_path: Path) -> None:
    write(tmp_path / "there", "kept")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")

    for name in ("there", "link", "absent/result"):
        with pytest.raises(Refused, match="cannot be written"):
            sandbox.write_new(tmp_path / name, b"x")
    assert ((tmp_path / "there").read_text(), (tmp_path / "elsewhere").exists()) == ("kept", False)


def test_the_devices_of_a_gpu_must_all_be_there(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        write(tmp_path / name, "")

    with pytest.raises(Refused, match=r"nvidia-uvm is missing"):
        sandbox.gpu_devices(0, folder=tmp_path)
    write(tmp_path / "nvidia-uvm", "")
    assert sandbox.gpu_devices(1, folder=tmp_path) == [
        str(tmp_path / name) for name in ("nvidia1", "nvidiactl", "nvidia-uvm")
    ]


def test_root_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    assert sandbox.main(["gate", str(tmp_path / "trial"), str(tmp_path / "result")]) == 2
    assert "this is root" in capsys.readouterr().err


def test_a_trial_goes_in_and_its_result_comes_out(
    bubblewrap: Config, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del bubblewrap
    folder = tmp_path / "program"
    folder.mkdir()
    write(folder / "trial.py", "import sys\nsys.stdout.write(' '.join([*sys.argv[1:], sys.stdin.read()]))\n")
    monkeypatch.setattr(sandbox, "PROGRAM", folder / "trial.py")
    monkeypatch.setattr(sandbox, "gpu_devices", lambda _: [])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    environment = Path(python).parent.parent
    config = write(tmp_path / "sandbox.toml", f'environment = "{environment}"\n')
    if not (environment / "bin" / "python").exists():
        monkeypatch.setattr(sandbox, "bubblewrap_command", _with_python3)
    trial, result = write(tmp_path / "trial.tar", "the trial"), tmp_path / "result"

    code = sandbox.main(["gate", str(trial), str(result)], config_path=config, owner=os.getuid())

    assert (code, result.read_text(), result.stat().st_mode & 0o777) == (0, "gate 2400 the trial", 0o600)


_command = sandbox.bubblewrap_command


def _with_python3(config: Config, program: list[str], *, devices: list[str]) -> list[str]:
    return _command(config, [f"{program[0]}3", *program[1:]], devices=devices)


def test_the_installed_program_starts_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-I", sandbox.__file__, "--help"], capture_output=True, text=True, cwd="/", check=True
    )

    assert "flopwatch-sandbox" in done.stdout
