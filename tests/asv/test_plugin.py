from __future__ import annotations

import subprocess
import sys

WITHOUT_ASV = "import sys; sys.modules['asv'] = None; "


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_flopwatch_and_its_command_line_do_not_need_asv() -> None:
    process = python(WITHOUT_ASV + "import flopwatch, flopwatch.cli, flopwatch.asv.recording, flopwatch.asv.plugin")

    assert (process.returncode, process.stderr) == (0, "")


def test_without_asv_the_plugin_says_what_to_install() -> None:
    process = python(
        WITHOUT_ASV + "from flopwatch.asv.plugin import setup\n"
        "from flopwatch.errors import UsageError\n"
        "try:\n    setup()\nexcept UsageError as error:\n    print(error)"
    )

    assert process.stdout.splitlines() == [
        "the history needs asv",
        "  why: no module named 'asv' in this interpreter",
        "  do:  python -m pip install 'flopwatch[history]'",
    ]


def test_another_missing_module_is_not_mistaken_for_asv() -> None:
    process = python("import sys; sys.modules['msgspec'] = None\nfrom flopwatch.asv.plugin import setup\nsetup()")

    assert "msgspec" in process.stderr
    assert "the history needs asv" not in process.stderr


def test_setup_twice_extends_the_machine_once() -> None:
    process = python(
        "from asv.machine import Machine\nfrom flopwatch.asv.plugin import setup\n"
        "setup(); once = Machine.load.__func__; setup(); print(once is Machine.load.__func__)"
    )

    assert process.stdout == "True\n", process.stderr
