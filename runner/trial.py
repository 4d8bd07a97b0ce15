"""What runs inside the sandbox: unpack a trial, let flopwatch measure it, and send the result out.

The trial is read from stdin and the result written to stdout; all that the measured code prints becomes stderr. The
arguments are the verb and the seconds until the launcher kills all of this. This file stands alone, and nothing in it
protects anything: whatever runs in here can do all that it can.
"""

# ruff: noqa: T201 - what it prints is the sandbox's log

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, BinaryIO

#: `-P` keeps the trial's own folder out of the path of imports: the flopwatch that judges is the installed one.
FLOPWATCH = (sys.executable, "-P", "-m", "flopwatch")
RESULTS = "results"
#: In the archive of a night: the last commit up to which nothing is left to record.
RECORDED = "recorded"
#: Likewise the commit that took the whole night and is not complete: no night would get beyond it.
GIVEN_UP = "given-up"
#: Of the time that a night has, what is for measuring: of 2400 s, 240 are left to end what was begun, which takes the
#: grace of a few workers, and to send what there is.
MEASURING_SHARE = 0.9


def unpack(source: BinaryIO, repository: Path) -> None:
    """Unpack the git folder of a trial, and check its head out."""
    with tarfile.open(fileobj=source, mode="r|") as archive:
        archive.extractall(repository, filter="data")
    command = ["git", "-c", "core.hooksPath=/dev/null", "checkout", "--quiet", "--force"]
    subprocess.run(command, cwd=repository, check=True)  # noqa: S603 - no shell


def gate(repository: Path, out: BinaryIO, _until_s: float) -> int:
    """Compare head with base; returns the gate's exit code.

    Head is the working tree: a pull request's head has base's suites in it, and is no commit that anybody knows.
    """
    result = repository.with_name("gate.json")
    command = [*FLOPWATCH, "gate", "refs/heads/base", "--json", str(result)]
    code = subprocess.run(command, cwd=repository, check=False).returncode  # noqa: S603 - no shell
    with contextlib.suppress(FileNotFoundError):
        out.write(result.read_bytes())
    return code


def record(repository: Path, out: BinaryIO, until_s: float) -> int:
    """Record the commits from base to head while there is time; returns the exit code of ``flopwatch record``.

    Sends what is new, and how far it is complete; where not even one commit is, nothing: the next night begins there.
    So it is where torch finds no GPU, which a broken driver looks like: static facts alone would count as recorded.
    Where the first commit had all of the time, another night would not complete it either: it is given up, with what is
    measured of it.

    Args:
        repository: the trial.
        out: where the archive goes.
        until_s: on the monotonic clock; what is not measured by then is left to the next night.
    """
    start_s = time.monotonic()
    before = _contents(repository)
    report = repository.with_name("record.json")
    command = [*FLOPWATCH, "record", "refs/heads/base..refs/heads/head", "--json", str(report)]
    is_late = False
    with subprocess.Popen(command, cwd=repository) as process:  # noqa: S603 - no shell
        try:
            code = process.wait(until_s - time.monotonic())
        except subprocess.TimeoutExpired:
            is_late = True
            process.send_signal(signal.SIGINT)  # it loses the case that it is at
            code = process.wait()
    recording = json.loads(report.read_bytes()) if report.is_file() else None
    if recording and recording["gpu"] is None:
        print("there is no GPU in here: nothing is kept, or these commits would never be timed", file=sys.stderr)
        return code
    last = last_complete(recording) if recording else ""
    members = {RECORDED: last}
    if recording and is_late and (endless := only_commit(recording)):
        last = endless["commit"]
        give_up(Path(endless["path"]), f"not complete after {until_s - start_s:.0f} s, all of a night's time")
        members = {RECORDED: last, GIVEN_UP: last}
    if last:
        changed = [path for path, content in _contents(repository).items() if before.get(path) != content]
        with tarfile.open(fileobj=out, mode="w|") as archive:
            for name, text in members.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
            for path in sorted(changed):
                archive.add(repository / path, arcname=path, recursive=False)
    return code


def last_complete(recording: dict[str, Any]) -> str:
    """Return the last commit of a recording, the oldest first, before which none is left to be measured; "" for none.

    What was recorded beside another process, or on a hot GPU, is measured again; a failure is a result.

    >>> commits = [{"commit": "a", "unfit": ""}, {"commit": "b", "unfit": ""}]
    >>> last_complete({"commits": commits, "interrupted": False, "unfit": ""})
    'b'
    >>> last_complete({"commits": commits, "interrupted": True, "unfit": ""})  # it was at b
    'a'
    """
    commits = recording["commits"]
    if recording["interrupted"] or recording["unfit"]:
        commits = commits[:-1]
    last = ""
    for commit in commits:
        if commit["unfit"]:
            break
        last = commit["commit"]
    return last


def only_commit(recording: dict[str, Any]) -> dict[str, Any] | None:
    """Return the commit at which a recording was interrupted, where it came to no other and the machine was fit.

    >>> endless = {"commit": "a", "unfit": ""}
    >>> only_commit({"commits": [endless], "interrupted": True, "unfit": ""})
    {'commit': 'a', 'unfit': ''}
    >>> only_commit({"commits": [endless, endless], "interrupted": True, "unfit": ""})  # it gets the next night alone
    """
    match recording:
        case {"commits": [{"unfit": ""} as commit], "interrupted": True, "unfit": ""}:
            return dict(commit)
    return None


def give_up(result: Path, reason: str) -> None:
    """Say in the sidecar of a commit's result why the rest of its cases is missing, as `flopwatch.record.sidecar`."""
    line = {"given_up": {"at": dt.datetime.now(tz=dt.UTC).isoformat(), "reason": reason}}
    with result.with_suffix(".jsonl").open("a", encoding="utf-8") as sidecar:
        sidecar.write(f"{json.dumps(line)}\n")


def _contents(repository: Path) -> dict[str, bytes]:
    """Return the files of the results, by their path from the repository."""
    return {
        path.relative_to(repository).as_posix(): path.read_bytes()
        for path in (repository / RESULTS).rglob("*.json*")
        if path.is_file() and not path.is_symlink()
    }


def main() -> int:
    """Run the verb that the launcher names, in the time that it gives."""
    verb = {"gate": gate, "record": record}[sys.argv[1]]
    until_s = time.monotonic() + float(sys.argv[2]) * MEASURING_SHARE
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits it where it was ignored
    repository = Path.cwd() / "trial"
    repository.mkdir()
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        unpack(sys.stdin.buffer, repository)
        return verb(repository, out, until_s)


if __name__ == "__main__":
    sys.exit(main())
