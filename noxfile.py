"""What developers and CI run; ``nox -l`` lists the sessions.

Sessions that need torch share one environment, so that a machine installs torch once. ``--here`` after ``--``, or nox's
own ``--no-venv``, runs them in the interpreter that runs nox instead and installs nothing: for a machine that already
has torch with CUDA.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = "virtualenv"

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml("pyproject.toml")
HERE = "--here" in sys.argv or "--no-venv" in sys.argv

#: The oldest and the newest Triton that flopwatch supports, and what else each needs.
TRITON_ENDS = {
    "3.6.0": ["numpy<2.4"],  # with 2.4, loops over tensor bounds fail in its interpreter
    "3.9.0": [],
}

#: Where the tests are that need `flopwatch[profile]`, `flopwatch[tilelang]` or `flopwatch[viz]`.
EXTRAS_TESTS = ("tests/profile", "tests/sanitize", "tests/static/traffic/test_footprints.py", "tests/study")

#: Seconds that an interrupted gate has to stop its workers and to remove its worktrees.
PATIENCE_S = 20.0

#: What the tests and the gate import: module -> the distribution that has it.
NEEDED_HERE = {
    "torch": "torch",
    "triton": "triton",
    "numpy": "numpy",
    "asv": "asv",
    "msgspec": "msgspec",
    "rich": "rich",
    "pytest": "pytest",
    "pytest_timeout": "pytest-timeout",
    "pytest_benchmark": "pytest-benchmark",
    "hypothesis": "hypothesis",
}


@nox.session(default=False, venv_backend="none" if HERE else None)
def environment(session: nox.Session) -> None:
    """Install torch, flopwatch and the tools once, for the sessions below."""
    if HERE:
        missing = [name for module, name in NEEDED_HERE.items() if importlib.util.find_spec(module) is None]
        if missing:
            session.error(
                f"{sys.executable} lacks {', '.join(missing)}\n"
                "  why: --here and --no-venv install nothing\n"
                f"  do:  {sys.executable} -m pip install {' '.join(missing)}, or leave that option out"
            )
        return
    _install(session, "--editable", ".[history]", "./compat", *_groups("types"))  # which has the tests


@nox.session(requires=["environment"], venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run the tests. After `--`: --here, and arguments of pytest."""
    # Side by side, but on a GPU: there the tests that measure would disturb each other.
    workers = () if HERE else ("-n", "auto", "--dist", "loadfile")
    _python(session, "-m", "pytest", *workers, *_arguments(session))


@nox.session(default=False)
@nox.parametrize("version", [nox.param(version, id=version) for version in TRITON_ENDS])
def triton(session: nox.Session, version: str) -> None:
    """Run the tests on the oldest or the newest supported Triton, in an environment of its own."""
    # Each torch requires its own Triton, and so do the constraints; --no-deps lets this one stand beside it.
    rest = [name for name in PROJECT["project"]["dependencies"] if not name.startswith("triton")]
    _install(session, *rest, *PROJECT["project"]["optional-dependencies"]["history"], *_groups("test"))
    session.install("--no-deps", "--editable", ".", "./compat", f"triton=={version}", *TRITON_ENDS[version])
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(default=False)
def extras(session: nox.Session) -> None:
    """Run the tests of the optional peers and viewers, which the others skip. After `--`: arguments of pytest."""
    _install(session, "--editable", f".[{','.join(PROJECT['project']['optional-dependencies'])}]", "./compat")
    _install(session, *_groups("test"))
    session.run("python", "-m", "pytest", *(session.posargs or EXTRAS_TESTS))


@nox.session(requires=["environment"], venv_backend="none", default=False)
def gate(session: nox.Session) -> None:
    """Compare this commit with its base. After `--`: --here, and arguments of `flopwatch gate`."""
    _python(session, "-m", "flopwatch", "gate", *_arguments(session))


@nox.session(requires=["environment"], venv_backend="none", default=False)
def architectures(session: nox.Session) -> None:
    """Compile the plain kernels' lists for a GPU of each architecture. After `--`: --device NAME,..., --page FILE."""
    _python(session, "-m", "evidence.architectures", *_arguments(session))


@nox.session(requires=["environment"], venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Compare what the host's part costs with the committed baseline. After `--`: record, noise, options of pytest."""
    _python(session, "-m", "benchmarks_host", *_arguments(session))


@nox.session(requires=["environment"], venv_backend="none", default=False)
def history(session: nox.Session) -> None:
    """Record commits with asv, static facts where there is no GPU. After `--`: what `asv run` takes (HEAD^!)."""
    _python(session, "-m", "asv", "machine", "--yes")
    _python(session, "-m", "asv", "run", *(_arguments(session) or ["HEAD^!"]))


@nox.session(requires=["environment"], venv_backend="none", default=False)
def dashboard(session: nox.Session) -> None:
    """Build the history's web pages in html/. After `--`: --serve opens them on this machine."""
    _python(session, "-m", "asv", "publish")
    if "--serve" in session.posargs:
        _python(session, "-m", "asv", "preview", "--browser")
    else:
        session.log(f"What changed, and when: {ROOT / 'html' / 'changes.html'}, which opens as it is")
        session.log("The other pages need a server: nox -s dashboard -- --serve")


@nox.session(requires=["environment"], venv_backend="none", default=False)
def sanitize(session: nox.Session) -> None:
    """Look for faults of memory in the suites' kernels. After `--`: --here, and what `flopwatch sanitize` takes.

    `-- --forms` looks on a GPU at those that no small case takes; what follows is for `evidence.sanitized_forms`.
    """
    arguments = _arguments(session)
    forms = arguments[:1] == ["--forms"]
    _python(
        session,
        "-m",
        *(["evidence.sanitized_forms", *arguments[1:]] if forms else ["flopwatch", "sanitize", *arguments]),
    )


@nox.session(requires=["environment"], venv_backend="none", default=False)
def ledger(session: nox.Session) -> None:
    """Decide recorded clean runs again: false alarms, noise, other tools' rules. After `--`: a recording, --runs N."""
    _python(session, "-m", "evidence", "ledger", *_arguments(session))


@nox.session(requires=["environment"], venv_backend="none", default=False)
def power(session: nox.Session) -> None:
    """Plant slowdowns in recorded pairs: how often each is found. After `--`: a recording, --runs N."""
    _python(session, "-m", "evidence", "power", *_arguments(session))


@nox.session(requires=["environment"], venv_backend="none", default=False)
def changepoints(session: nox.Session) -> None:
    """Find labelled steps, beside asv and, after `-- --otava PYTHON`, Apache Otava."""
    _python(session, "-m", "evidence.changepoints", *_arguments(session))


@nox.session(requires=["environment"], venv_backend="none", default=False)
def calibrate(session: nox.Session) -> None:
    """Hold the static rules against planted changes. After `--`: compile FILE, measure FILE (on a GPU), or docs."""
    _python(session, "-m", "evidence.static_calibration", *_arguments(session))


@nox.session(requires=["environment"], venv_backend="none", default=False)
def plots(session: nox.Session) -> None:
    """Draw throughput against size, beside peers and the roofline, from what was measured. After `--`: a file."""
    _python(session, "-m", "evidence.peers", "plots", *_arguments(session))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting, the scripts of the shell, and the workflows."""
    _install(session, *_groups("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("shellcheck", ".ci/run", *sorted(str(path) for path in Path("runner").glob("*.sh")))
    templates = sorted(str(path) for path in Path("src/flopwatch/scaffold/templates").glob("*.yml"))
    session.run("zizmor", "--offline", "--persona", "pedantic", ".github", *templates)
    session.run("actionlint")  # which has shellcheck look at what the workflows run
    session.run("actionlint", *templates)
    workflows = sorted(str(path) for path in Path(".github/workflows").iterdir())
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows, *templates)
    session.run("check-jsonschema", "--builtin-schema", "vendor.dependabot", ".github/dependabot.yml")
    forms = sorted(str(path) for path in Path(".github/ISSUE_TEMPLATE").iterdir())
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-issue-forms", *forms)


@nox.session(requires=["environment"], venv_backend="none")
def types(session: nox.Session) -> None:
    """Check the types with mypy."""
    _python(session, "-m", "mypy", *_arguments(session))


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the documentation in docs/_build/html; every warning is an error."""
    light = [name for name in PROJECT["project"]["dependencies"] if not name.startswith(("torch", "triton"))]
    _install(session, *_groups("docs"), *light)
    session.run("sphinx-build", "-W", "-n", "--keep-going", *session.posargs, "docs", "docs/_build/html")


def _install(session: nox.Session, *requirements: str) -> None:
    session.install("-c", "constraints.txt", *requirements)


def _groups(*names: str) -> tuple[str, ...]:
    return nox.project.dependency_groups(PROJECT, *names)


def _arguments(session: nox.Session) -> list[str]:
    return [argument for argument in session.posargs if argument != "--here"]


def _python(session: nox.Session, *arguments: str) -> None:
    """Run the shared environment's interpreter, or this one."""
    if HERE:
        # Not installed here, flopwatch and the compat distribution are found in the checkout.
        path = [str(ROOT / "src"), str(ROOT / "compat" / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        session.run(
            sys.executable,
            *arguments,
            env={"PYTHONPATH": os.pathsep.join(path)},
            external=True,
            interrupt_timeout=PATIENCE_S,
        )
        return
    # nox keeps the environments of all sessions in one folder, and its cache too.
    programs = session.cache_dir.parent / "environment" / "bin"
    path = [str(programs), os.environ["PATH"]]
    session.run(
        str(programs / "python"),
        *arguments,
        env={"PATH": os.pathsep.join(path)},
        external=True,
        interrupt_timeout=PATIENCE_S,
    )
