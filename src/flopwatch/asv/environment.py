"""The environment in which asv runs every commit: one interpreter for all of them, and the commit's checkout.

torch takes gigabytes and minutes to install; a commit under test changes kernels, not torch. So nothing is installed:
a commit is a checkout, and only the packages under test are imported from it. The suites and flopwatch come
from the working tree, so that the ruler does not change with what it measures.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv import util
from asv.environment import Environment

from flopwatch import overlay
from flopwatch.asv.failures import KeptFailure, keep_failures
from flopwatch.asv.interpreter import find_interpreter, probe_interpreter
from flopwatch.asv.machine import gpu_label, working_tree
from flopwatch.asv.recording import GPU_VARIABLE, ROOT_VARIABLE
from flopwatch.config import load_config
from flopwatch.errors import FlopwatchError, UsageError
from flopwatch.model import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LONGEST_MESSAGE = 2000


class SharedEnvironment(Environment):  # type: ignore[misc] # asv ships no types
    """``"environment_type": "shared"`` in asv.conf.json.

    The versions of torch and triton and the GPU's name are recorded as if they were requirements, which makes them axes
    of the dashboard and parts of the name of a result: runs on two GPUs of one machine never overwrite each other.
    """

    tool_name = "shared"
    matches_python_fallback = False

    def __init__(
        self,
        conf: Any,  # noqa: ANN401 - asv's Config, untyped
        python: str,  # noqa: ARG002 - asv's signature; the interpreter itself says its version
        requirements: Mapping[str, str],
        tagged_env_vars: Mapping[tuple[str, str], str],
    ) -> None:
        try:
            _reject_matrix(conf, requirements)
            self._root = working_tree(conf)
            self._config = load_config(self._root)
            self._executable = find_interpreter(getattr(conf, "shared_python", None))
            found = probe_interpreter(self._executable)
        except FlopwatchError as error:
            raise util.UserError(str(error)) from None
        self._gpu = found.gpu or ""
        recorded = {
            "gpu": gpu_label(found.gpu, self._config.device),
            "torch": found.torch,
            "triton": found.triton,
        }
        # The base class computes folder names from these before it sets them; asv's own environments do the same.
        self._python, self._requirements = found.python, recorded
        super().__init__(conf, found.python, recorded, tagged_env_vars)

    def check_presence(self) -> bool:
        """Tell whether the folder of the checkout is there; the rest needs no setting up."""
        return Path(self._path).is_dir()

    def _setup(self) -> None:
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:  # noqa: ANN401, ARG002 - asv's signature
        """Check the commit out.

        Done every time, so that a checkout somebody has edited is never measured.
        """
        self.checkout_project(repo, commit_hash)
        self._set_build_dirs(self._build_root, None)

    def run(self, args: Sequence[str], **kwargs: Any) -> Any:  # noqa: ANN401 - asv's signature
        """Run a Python program with the packages under test taken from the checkout."""
        variables = dict(kwargs.pop("env", os.environ))
        variables |= self._global_env_vars
        variables |= overlay.environment(
            Path(self._build_root, self._repo_subdir), self._config.source, self._config.packages
        )
        variables |= {ROOT_VARIABLE: str(self._root), GPU_VARIABLE: self._gpu}
        if "PYTHONPATH" in variables:
            # asv's own programs drop PYTHONPATH unless it is repeated under this name; this interpreter is used as is.
            variables.setdefault("ASV_PYTHONPATH", variables["PYTHONPATH"])
        command = [self._executable, "-m", "flopwatch.overlay", *args]
        answer = util.check_output(command, env=variables, **kwargs)
        if "setup_cache" in args:
            self._keep_failure(args, *answer)
        return answer

    def _keep_failure(self, args: Sequence[str], output: str, _errors: str, exit_status: int) -> None:
        """Keep the reason why no case of a module could be measured; asv forgets it."""
        if exit_status == 0:
            return
        last_line = output.strip().rpartition("\n")[2] or f"exit status {exit_status}"
        failure = Failure(kind="SuiteFailed", message=last_line[:_LONGEST_MESSAGE], traceback=output)
        commit = self._global_env_vars["ASV_COMMIT"]
        benchmark = args[args.index("setup_cache") + 2]
        keep_failures(self._root, commit, [KeptFailure(case=benchmark, metrics=(), failure=failure)])


def _reject_matrix(conf: Any, requirements: Mapping[str, str]) -> None:  # noqa: ANN401 - asv's Config, untyped
    if requirements:
        raise UsageError(
            f"asv.conf.json wants {', '.join(requirements)} installed for each commit",
            why='the environment type "shared" installs nothing',
            todo='remove it from "matrix", and install it in the shared interpreter',
        )
    if len(conf.pythons) > 1:
        raise UsageError(
            f"asv.conf.json names {len(conf.pythons)} versions of Python",
            why='the environment type "shared" has one interpreter',
            todo='remove "pythons", and name the interpreter as "shared_python"',
        )
