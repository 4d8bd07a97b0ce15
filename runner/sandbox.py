#!/usr/bin/python3 -I
"""Run code that nobody trusts on this machine's GPU, out of reach of its network, its files and its credentials.

``flopwatch-sandbox gate TRIAL.tar RESULT.json`` compares the two commits of a trial (`runner.pack`), and
``flopwatch-sandbox record TRIAL.tar RESULTS.tar`` records its commits. The machine's owner chooses everything else in
/etc/flopwatch/sandbox.toml, so that a job cannot widen what it is given. The trial goes in by stdin, the result comes
out by stdout: no path of the job is ever mounted, and nothing that the code writes outlives it but those bytes.

This file stands alone: it is installed, owned by root, where no checkout is.
"""

# ruff: noqa: T201 - a job's log is what it prints

from __future__ import annotations

import argparse
import contextlib
import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import threading
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONFIG = Path("/etc/flopwatch/sandbox.toml")
#: What runs inside; it is installed beside this file.
PROGRAM = Path(__file__).resolve().with_name("trial.py")
#: The first bubblewrap that can forbid user namespaces inside, where most ways out of a sandbox begin.
OLDEST_BUBBLEWRAP = (0, 8)
#: A whole repository's history to record; a trial of a gate has two commits.
TRIAL_BYTES = 2 * 2**30
#: What the report reads at most, and a night's recordings.
RESULT_BYTES = {"gate": 4 * 2**20, "record": 256 * 2**20}
LOG_BYTES = 2**20
LOG_COLUMNS = 2000
#: Of the runner's own variables those that rootless podman needs to find its images and its user session.
ENGINE_VARIABLES = ("HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
#: Only cgroups of version 2 have it. Without them, or without a session of the user's, whose manager makes cgroups for
#: rootless podman, podman starts the sandbox with no limits of its own, and says so in its log alone (4.3.1).
CONTROLLERS = Path("/sys/fs/cgroup/cgroup.controllers")
SESSIONS = Path("/run/user")
#: In podman's own user namespace, which all of its containers share, forbid to make more of them: its filter of system
#: calls lets them be made (4.3.1), and inside a new one a process has every capability again.
NO_NAMESPACES = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
PATH = "/usr/local/bin:/usr/bin:/bin"


class Refused(Exception):  # noqa: N818 - it is the answer, not a fault of the program
    """Nothing was run, or what it wrote is not kept.

    Args:
        what: what did not work.
        code: as of flopwatch: 2 wrong usage or configuration, 3 no result, 4 the machine cannot do it.
        why: the cause.
        todo: what the reader can do.
    """

    def __init__(self, what: str, *, code: int = 2, why: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.code = code
        self.lines = [what, *([f"  why: {why}"] if why else []), *([f"  do:  {todo}"] if todo else [])]


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What this machine lends to a sandbox.

    Attributes:
        engine: "podman", "bubblewrap", or "auto": podman where it has an image, else bubblewrap.
        image: of podman, by digest; it has Python, git, a C compiler and flopwatch.
        environment: of bubblewrap, the folder of the virtual environment with flopwatch.
        gpu: the number in /dev/nvidiaN.
        machine: the name under which recordings of this machine are kept.
        wall_s: after so many seconds everything is killed.
        memory_bytes: of podman; with bubblewrap the limits of the runner's service hold.
        scratch_bytes: of each of the folders in memory that can be written to.
        processes: of podman, at most.
    """

    engine: str = "auto"
    image: str = ""
    environment: str = "/opt/flopwatch"
    gpu: int = 0
    machine: str = "flopwatch"
    wall_s: int = 2400
    memory_bytes: int = 64 * 2**30
    scratch_bytes: int = 16 * 2**30
    processes: int = 4096


def load_config(path: Path, *, owner: int = 0) -> Config:
    """Read the machine's settings.

    Raises:
        Refused: somebody but its owner could have written the file, or it is wrong; names every problem.
    """
    try:
        found = path.lstat()
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(f"{path} is missing", todo="see docs/runners.md") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refused(f"{path} cannot be read", why=str(error)) from None
    if not stat.S_ISREG(found.st_mode) or found.st_uid != owner or found.st_mode & 0o022:
        raise Refused(f"{path} can be written by others", todo=f"sudo chown root: {path}; sudo chmod 644 {path}")
    types = get_type_hints(Config)
    known = [field.name for field in fields(Config)]
    problems = [f"{key}: no such key (known: {', '.join(known)})" for key in table if key not in known]
    problems += [
        f"{key}: {value!r} is no {types[key].__name__}"
        for key, value in table.items()
        if key in known and type(value) is not types[key]
    ]
    if not problems:
        config = Config(**table)
        problems = _problems(config)
    if problems:
        raise Refused(f"{path} has problems", why="; ".join(problems))
    return config


def _problems(config: Config) -> list[str]:
    problems = []
    if config.engine not in {"auto", "podman", "bubblewrap"}:
        problems.append(f"engine: {config.engine!r} is none of auto, podman, bubblewrap")
    if config.image and not re.fullmatch(r"[a-z0-9][\w./:-]*@sha256:[0-9a-f]{64}", config.image):
        problems.append(f"image: {config.image!r} is not named by digest, as in registry/name@sha256:...")
    if config.engine == "podman" and not config.image:
        problems.append("image: missing; podman needs one")
    if not re.fullmatch(r"(/[\w.-]+)+", config.environment) or ".." in Path(config.environment).parts:
        problems.append(f"environment: {config.environment!r} is no plain absolute path")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", config.machine):
        problems.append(f"machine: {config.machine!r} is no host's name")
    problems += [
        f"{name}: {getattr(config, name)} is not > 0"
        for name in ("wall_s", "memory_bytes", "scratch_bytes", "processes")
        if getattr(config, name) <= 0
    ]
    return problems + ([f"gpu: {config.gpu} is not >= 0"] if config.gpu < 0 else [])


def choose_engine(config: Config, *, which: Callable[[str], str | None] = shutil.which) -> str:
    """Return "podman" or "bubblewrap", whichever is asked for and there.

    Raises:
        Refused: neither can be used.
    """
    if config.engine != "bubblewrap" and config.image and which("podman"):
        return "podman"
    if config.engine != "podman" and (path := which("bwrap")):
        version = bubblewrap_version(path)
        if version >= OLDEST_BUBBLEWRAP:
            return "bubblewrap"
        raise Refused(
            f"bubblewrap {'.'.join(map(str, version))} is too old",
            code=4,
            why="before 0.8 it cannot forbid user namespaces inside",
            todo="install a newer one, or podman",
        )
    wanted = {"auto": "podman with an image, or bubblewrap,"}.get(config.engine, config.engine)
    raise Refused(f"{wanted} is not there", code=4, todo="apt-get install bubblewrap, or podman and an image")


def bubblewrap_version(path: str) -> tuple[int, ...]:
    """Return the version of a bubblewrap; (0,) where it does not say."""
    command = [path, "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - no shell
    found = re.search(r"(\d+(?:\.\d+)+)", answer)
    return tuple(int(part) for part in found[1].split(".")) if found else (0,)


def variables(config: Config, engine: str) -> dict[str, str]:
    """Return the whole environment of what runs inside."""
    programs = f"{config.environment}/bin:" if engine == "bubblewrap" else ""
    return {
        "PATH": f"{programs}{PATH}",
        "HOME": "/scratch",
        "USER": "flopwatch",  # torch names its caches after it, and there is no password file to ask
        "LOGNAME": "flopwatch",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own, in memory
        "TRITON_CACHE_DIR": "/scratch/.triton",  # empty each time: what an earlier run compiled could be anything
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def bubblewrap_command(config: Config, program: Sequence[str], *, devices: Sequence[str]) -> list[str]:
    """Return the command line that runs `program` by bubblewrap.

    Nothing of the host is there but /usr, the environment, the folder of `trial.py`, what the dynamic linker needs of
    /etc, /sys (CUDA looks the GPU up there), all read-only, and the device nodes.
    """
    size = str(config.scratch_bytes)
    command = ["bwrap", "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--uid", "1000", "--gid", "1000", "--hostname", config.machine, "--clearenv"]
    for name, value in variables(config, "bubblewrap").items():
        command += ["--setenv", name, value]
    command += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib64"):
        command += ["--symlink", f"usr/{name}", f"/{name}"]
    for path in ("/etc/ld.so.cache", "/etc/alternatives", "/sys"):
        command += ["--ro-bind-try", path, path]
    command += ["--ro-bind", config.environment, config.environment, "--ro-bind", str(PROGRAM.parent), "/program"]
    command += ["--proc", "/proc", "--dev", "/dev"]
    for path in devices:
        command += ["--dev-bind", path, path]
    for path in ("/dev/shm", "/tmp", "/scratch"):  # noqa: S108 - the sandbox's own
        command += ["--size", size, "--tmpfs", path]
    # What bubblewrap makes to hang these on is a folder in memory as well, without a limit.
    return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/scratch", "--", *program]


def podman_command(config: Config, program: Sequence[str], *, name: str) -> list[str]:
    """Return the command line that runs `program` by rootless podman."""
    command = ["podman", "unshare", "sh", "-c", NO_NAMESPACES, "sh"]
    command += ["podman", "run", "--rm", "--interactive", "--name", name, "--pull", "never", "--log-driver", "none"]
    command += ["--network", "none", "--http-proxy=false", "--ipc", "private", "--hostname", config.machine]
    command += ["--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--user", "1000:1000"]
    command += ["--security-opt", "no-new-privileges", "--pids-limit", str(config.processes)]
    command += ["--memory", str(config.memory_bytes), "--memory-swap", str(config.memory_bytes)]
    command += ["--timeout", str(config.wall_s), "--shm-size", str(config.scratch_bytes)]
    command += ["--device", f"nvidia.com/gpu={config.gpu}", "--volume", f"{PROGRAM.parent}:/program:ro"]
    for path in ("/tmp", "/scratch"):  # noqa: S108 - the sandbox's own; Triton loads what it compiles there, hence exec
        command += ["--tmpfs", f"{path}:rw,exec,nosuid,nodev,mode=1777,size={config.scratch_bytes}"]
    for variable, value in variables(config, "podman").items():
        command += ["--env", f"{variable}={value}"]
    return [*command, "--workdir", "/scratch", "--entrypoint", program[0], config.image, *program[1:]]


def require_limits(controllers: Path = CONTROLLERS, sessions: Path = SESSIONS) -> None:
    """Refuse podman where it would ignore the limits of memory and processes.

    Raises:
        Refused: the machine has cgroups of version 1, or nobody makes one for this user.
    """
    what = "podman cannot limit memory and processes here"
    if not controllers.exists():
        why = f"cgroups of version 2 are not there: no {controllers}"
        raise Refused(what, code=4, why=why, todo="boot with systemd.unified_cgroup_hierarchy=1, or use bubblewrap")
    bus = sessions / str(os.geteuid()) / "bus"
    if not bus.exists():
        why = f"this user has no session of systemd: no {bus}"
        raise Refused(what, code=4, why=why, todo="apt-get install dbus-user-session; sudo loginctl enable-linger USER")


def gpu_devices(number: int, *, folder: Path = Path("/dev")) -> list[str]:
    """Return the device nodes of a GPU.

    Raises:
        Refused: one is missing; inside, none can be made.
    """
    needed = [folder / name for name in (f"nvidia{number}", "nvidiactl", "nvidia-uvm")]
    missing = [str(path) for path in needed if not path.exists()]
    if missing:
        raise Refused(f"{', '.join(missing)} is missing", code=4, todo="sudo nvidia-modprobe -u -c 0, at each boot")
    tools = folder / "nvidia-uvm-tools"
    return [str(path) for path in (*needed, *([tools] if tools.exists() else []))]


@contextlib.contextmanager
def open_trial(path: Path) -> Any:  # noqa: ANN401 - an iterator of a binary file, which contextlib wraps
    """Open a trial for reading.

    Raises:
        Refused: it is a link, a pipe or a device, too large, or not there.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Refused(f"{path} cannot be opened", why=str(error.strerror)) from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise Refused(f"{path} is no plain file")
    with os.fdopen(descriptor, "rb") as file:
        if not 0 < found.st_size <= TRIAL_BYTES:
            raise Refused(f"{path} has {found.st_size} bytes", why=f"a trial has 1 to {TRIAL_BYTES}")
        yield file


def write_new(path: Path, data: bytes) -> None:
    """Write a result where nothing is yet.

    Raises:
        Refused: something is there, if only a link, or the folder is not.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Refused(f"{path} cannot be written", why=str(error.strerror), todo="name a new file") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def harmless(line: bytes) -> str:
    r"""Return a line of the log that neither the terminal nor the runner obeys.

    >>> harmless(b"::error::boo ##[group]x\x1b[2J\xff")
    '| ::error::boo # #[group]x?[2J?'
    """
    text = line.decode("utf-8", errors="replace").rstrip("\r\n").replace("##[", "# #[")
    return "| " + "".join(char if char.isprintable() and char != "\ufffd" else "?" for char in text)[:LOG_COLUMNS]


def copy_log(source: BinaryIO, log: TextIO, *, limit: int = LOG_BYTES) -> None:
    """Show what the code says on stderr, made harmless; past the limit it is read and dropped."""
    shown = 0
    while line := source.readline(LOG_COLUMNS):
        shown += len(line)
        if shown <= limit:
            print(harmless(line), file=log, flush=True)
    if shown > limit:
        print(f"flopwatch-sandbox: {shown - limit} more bytes of log are not shown", file=log, flush=True)


def run(
    command: Sequence[str],
    trial: BinaryIO,
    *,
    wall_s: float,
    limit: int,
    log: TextIO,
    stop: Callable[[], None] = lambda: None,
) -> bytes:
    """Run a sandbox to its end, and return what it wrote to stdout.

    Args:
        command: the engine's command line.
        trial: its stdin.
        wall_s: after so many seconds it is killed.
        limit: bytes of a result.
        log: where its stderr is shown.
        stop: what else ends a sandbox whose engine was killed.

    Raises:
        Refused: it took too long, or wrote too much or nothing.
    """
    environment = {"PATH": PATH} | {name: os.environ[name] for name in ENGINE_VARIABLES if name in os.environ}
    # Until this token is said again, the runner obeys no command in the log. It is never known inside.
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", file=log, flush=True)
    late = threading.Event()
    with subprocess.Popen(  # noqa: S603 - the machine's own settings and nothing of the job
        command, stdin=trial, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True
    ) as process:
        assert process.stdout is not None  # noqa: S101 - as asked for
        assert process.stderr is not None  # noqa: S101 - likewise

        def end() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        def end_late() -> None:
            late.set()
            end()

        timer = threading.Timer(wall_s, end_late)
        reader = threading.Thread(target=copy_log, args=(process.stderr, log))
        try:
            timer.start()
            reader.start()
            data = process.stdout.read(limit + 1)
            if len(data) <= limit:
                process.wait()
        finally:
            timer.cancel()
            end()
            stop()
            reader.join()
            print(f"::{token}::", file=log, flush=True)
    if late.is_set():
        raise Refused(f"it was stopped after {wall_s:g} s", code=3, todo="measure fewer cases, or raise wall_s")
    if len(data) > limit:
        raise Refused(f"its result has more than {limit} bytes", code=3)
    if not data:
        raise Refused("it ended without a result", code=3, why=f"exit code {process.returncode}; its log is above")
    return data


def refuse_root() -> None:
    """Refuse to run as root: what gets out of the sandbox would be root.

    Raises:
        Refused: this is root.
    """
    if os.geteuid() == 0:
        raise Refused("this is root", why="what gets out of the sandbox would be root", todo="use the runner's user")


def end_with_the_job() -> None:
    """Let the sandbox end when its job is cancelled, which these signals say."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(3))


def main(arguments: Sequence[str] | None = None, *, config_path: Path = CONFIG, owner: int = 0) -> int:
    """Run one trial; returns the exit code."""
    parser = argparse.ArgumentParser(prog="flopwatch-sandbox", description="Run untrusted commits on this GPU.")
    parser.add_argument("verb", choices=sorted(RESULT_BYTES))
    parser.add_argument("trial", type=Path, help="what runner.pack wrote")
    parser.add_argument("result", type=Path, help="a new file")
    options = parser.parse_args(arguments)
    try:
        refuse_root()
        config = load_config(config_path, owner=owner)
        engine = choose_engine(config)
        name = f"flopwatch-{secrets.token_hex(6)}"
        program = ["-I", "/program/trial.py", options.verb, str(config.wall_s)]
        if engine == "podman":
            require_limits()
            command = podman_command(config, ["python3", *program], name=name)
        else:
            python = f"{config.environment}/bin/python"
            command = bubblewrap_command(config, [python, *program], devices=gpu_devices(config.gpu))

        def stop() -> None:
            if engine == "podman":  # its containers do not end with the command that started them
                remove = ["podman", "rm", "--force", "--ignore", "--time", "0", name]
                subprocess.run(remove, stdout=subprocess.DEVNULL, check=False)  # noqa: S603 - no shell, our own name

        with open_trial(options.trial) as trial:
            limit = RESULT_BYTES[options.verb]
            data = run(command, trial, wall_s=config.wall_s, limit=limit, log=sys.stdout, stop=stop)
        write_new(options.result, data)
    except Refused as refusal:
        print("\n".join(refusal.lines), file=sys.stderr)
        return refusal.code
    print(f"{len(data)} bytes of result")
    return 0


if __name__ == "__main__":
    end_with_the_job()
    sys.exit(main())
