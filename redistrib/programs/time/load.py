"""Programs named on a command line: `module:function`, a file of a program's text, or a file of a plan's JSON."""

from __future__ import annotations

import importlib
import inspect
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redistrib.errors import ProgramError, RedistribError
from redistrib.lang.mesh import Mesh
from redistrib.plans.plan import Plan
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.program import Program


def load(source: str, mesh: Mesh | None = None) -> Program | Plan:
    """The object that a name refers to.

    Args:
        source: `module:function` or `file.py:function`, a function that returns a program or a plan, or either itself;
            else a file: a plan's JSON where it ends in `.json`, and a program's text where it does not.
        mesh: the argument for a function with a parameter.

    Raises:
        ProgramError: if there is no such module or function, or it fails, or returns neither a program nor a plan.
        RedistribError: raised by the function, or by reading the file.
        OSError: if the file cannot be read.
    """
    result = load_any(source, mesh)
    if not isinstance(result, Program | Plan):
        raise _error(f"{source!r} is of type {type(result).__name__}, and a program or a plan is simulated")
    return result


def load_any(source: str, mesh: Mesh | None = None) -> Any:
    """The same as `load`, where a function may return anything.

    Raises:
        ProgramError, RedistribError, OSError: see `load`.
    """
    _, colon, name = source.rpartition(":")
    if colon and name.isidentifier():
        return _result(source, named(source), mesh)
    path = Path(source)
    if not path.exists():
        raise _error(f"no file {source!r}; give module:function, or a file of a program's text or a plan's JSON")
    try:
        text = path.read_text()
    except UnicodeDecodeError as error:
        raise _error(f"{source!r} is not text; give a program's text, or a plan's JSON") from error
    return Plan.from_json(text) if path.suffix == ".json" else parse(text)


def _error(why: str) -> ProgramError:
    return ProgramError("", "", "Program", why)


def named(source: str) -> Any:
    """The object that `module:name` or `file.py:name` stands for; modules of the working folder are found too.

    Raises:
        ProgramError: if there is no such module, file or name, or loading it fails.
        RedistribError: raised while loading it.
    """
    module, _, name = source.rpartition(":")
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise _error(f"no file {module!r}")
        names = _guarded(source, lambda: runpy.run_path(module))
    else:
        if str(Path.cwd()) not in sys.path:  # as `python -m` has it
            sys.path.insert(0, str(Path.cwd()))
        names = vars(_guarded(source, lambda: importlib.import_module(module)))
    if name not in names:
        raise _error(f"{module!r} has no {name!r}")
    return names[name]


def _result(source: str, value: Any, mesh: Mesh | None) -> Any:
    """A value, or the result of a function of a mesh."""
    if not (inspect.isroutine(value) or inspect.isclass(value)):
        return value
    parameters = inspect.signature(value).parameters.values()
    if mesh is None and any(parameter.default is parameter.empty for parameter in parameters):
        raise _error(f"{source!r} takes a mesh; give one with --mesh")
    args = (mesh,) if parameters and mesh is not None else ()
    return _guarded(source, lambda: value(*args))


def _guarded(source: str, call: Callable[[], Any]) -> Any:
    """The result of a user's code; its failure in one line."""
    try:
        return call()
    except RedistribError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise _error(f"{source!r} failed: {why}") from error
