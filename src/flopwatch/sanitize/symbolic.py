"""Have triton-viz's sanitizer look at cases: it asks Z3 whether any program may leave the tensors of its launch."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

import triton

from flopwatch.measure.inputs import make_inputs
from flopwatch.measure.session import failure_of
from flopwatch.model import Failure
from flopwatch.sanitize.findings import Access, Finding, Kind, merged
from flopwatch.sanitize.result import NOT_COVERED, CaseReport
from flopwatch.sanitize.tools import Tool
from flopwatch.static import pretend_gpu
from flopwatch.static.interpreter import refuse_compiled
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flopwatch.model import Case
    from flopwatch.suite import Suite


@contextlib.contextmanager
def look_symbolic(benchmarks: Path, device: str) -> Iterator[Callable[[Suite, Case], CaseReport]]:
    """Import the suites with every kernel traced; yield what runs a case.

    The kernels' modules must not have been imported before: it is the decorators that are replaced.
    """
    triton_viz = importlib.import_module("triton_viz")  # it may not be installed
    clients_of = importlib.import_module("triton_viz.clients")

    clients: list[Any] = []

    def traced(kernel: Any) -> Any:  # noqa: ANN401 - triton-viz's, untyped
        clients.append(clients_of.Sanitizer(abort_on_error=False))
        return triton_viz.trace(client=clients[-1])(kernel)

    def run(suite: Suite, case: Case) -> CaseReport:
        for client in clients:
            client.records.clear()
        failure = None
        with pretend_gpu(device, tensors="cpu"), contextlib.ExitStack() as restore:
            refuse_compiled(restore)  # nobody looks at it
            try:
                suite.call(case.provider)(*make_inputs(suite, case, seed=0))
            except NotImplementedError as error:
                failure = Failure(kind=NOT_COVERED, message=f"triton-viz: {error}")
            except Exception as error:  # noqa: BLE001 - a case that fails is a result, whatever it raises
                failure = failure_of(error)
        records = [record for client in clients for record in client.records]
        return CaseReport(
            case=case, tool=Tool.TRITON_VIZ, findings=merged(finding_of(record) for record in records), failure=failure
        )

    with pretend_gpu(device, tensors="cpu"), contextlib.ExitStack() as restore:  # whose own kernels are not traced
        for name in ("jit", "autotune"):
            original = getattr(triton, name)
            restore.callback(setattr, triton, name, original)
            setattr(triton, name, _tracing(original, traced))
        discover(benchmarks)
    yield run


def _tracing(decorator: Callable[..., Any], traced: Callable[[Any], Any]) -> Callable[..., Any]:
    """Trace what a decorator makes, whether it is applied as it is or after it was given options."""

    def decorate(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - triton-viz's, untyped
        made = decorator(*arguments, **options)
        if hasattr(made, "run"):
            return traced(made)
        return lambda function: traced(made(function))

    return decorate


def finding_of(record: Any) -> Finding:  # noqa: ANN401 - triton-viz's, untyped
    """Translate what triton-viz reports."""
    trace = record.user_code_tracebacks[-1] if record.user_code_tracebacks else None
    access = {"Load": Access.READ, "RawLoad": Access.READ}.get(record.op_type.__name__, Access.WRITE)
    offset = int(record.violation_address) - record.tensor.data_ptr()
    name = record.tensor_name or "a tensor"
    return Finding(
        kind=Kind.OUT_OF_BOUNDS,
        what=f"a program {'reads' if access is Access.READ else 'writes'} {offset:,} bytes from the first of {name}",
        kernel=trace.func_name if trace else "",
        file=trace.filename if trace else "",
        line=trace.lineno if trace else 0,
        access=access,
        argument=record.tensor_name or "",
        element_bytes=record.tensor.element_size(),
        address=str(offset),
    )
