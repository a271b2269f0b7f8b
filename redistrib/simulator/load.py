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
from redistrib.programs.parse import parse
from redistrib.programs.program import Program


def load(what: str, mesh: Mesh | None = None) -> Program | Plan:
    """What a name stands for.

    Args:
        what: `module:function` or `file.py:function`, a function that returns a program or a plan, or either itself;
            else a file: a plan's JSON where it ends in `.json`, and a program's text where it does not.
        mesh: what a function with a parameter is called with.

    Raises:
        ProgramError: if there is no such module or function, or it fails, or makes neither of the two.
        RedistribError: what the function raises, or reading the file.
        OSError: if the file cannot be read.
    """
    result = load_any(what, mesh)
    if not isinstance(result, Program | Plan):
        raise _error(f"{what!r} is of type {type(result).__name__}, and a program or a plan is simulated")
    return result


def load_any(what: str, mesh: Mesh | None = None) -> Any:
    """The same as `load`, where a function may return anything.

    Raises:
        ProgramError, RedistribError, OSError: see `load`.
    """
    module, colon, name = what.rpartition(":")
    if colon and name.isidentifier():
        return _made(what, _found(what, module, name), mesh)
    path = Path(what)
    if not path.exists():
        raise _error(f"no file {what!r}; give module:function, or a file of a program's text or a plan's JSON")
    try:
        text = path.read_text()
    except UnicodeDecodeError as error:
        raise _error(f"{what!r} is not text; give a program's text, or a plan's JSON") from error
    return Plan.from_json(text) if path.suffix == ".json" else parse(text)


def _error(why: str) -> ProgramError:
    return ProgramError("", "", "Program", why)


def _found(what: str, module: str, name: str) -> Any:
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise _error(f"no file {module!r}")
        names = _guarded(what, lambda: runpy.run_path(module))
    else:
        if str(Path.cwd()) not in sys.path:  # as `python -m` has it
            sys.path.insert(0, str(Path.cwd()))
        names = vars(_guarded(what, lambda: importlib.import_module(module)))
    if name not in names:
        raise _error(f"{module!r} has no {name!r}")
    return names[name]


def _made(what: str, found: Any, mesh: Mesh | None) -> Any:
    if inspect.isroutine(found) or inspect.isclass(found):
        asks = any(one.default is one.empty for one in inspect.signature(found).parameters.values())
        takes = bool(inspect.signature(found).parameters)
        if asks and mesh is None:
            raise _error(f"{what!r} takes a mesh; give one with --mesh")
        given = (mesh,) if takes and mesh is not None else ()
        function = found
        return _guarded(what, lambda: function(*given))
    return found


def _guarded(what: str, call: Callable[[], Any]) -> Any:
    """What a user's code makes; its failure in one line."""
    try:
        return call()
    except RedistribError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise _error(f"{what!r} failed: {why}") from error
