"""The package as it is shipped: a wheel that builds and installs elsewhere, and an import that stays light."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tokenize
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

import redistrib
from tests.messages import exactly

ROOT = Path(__file__).resolve().parent.parent


def python(code: str, **environment: str) -> str:
    """Output of a fresh interpreter, far from the source tree."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd="/",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_every_module_and_the_type_marker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "redistrib").rglob("*.py")}
    assert sources <= names
    assert "redistrib/py.typed" in names
    inside = {name.split("/")[0] for name in names}
    assert inside == {"redistrib", f"redistrib-{redistrib.__version__}.dist-info"}


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    info = f"redistrib-{redistrib.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        metadata = HeaderParser().parsestr(archive.read(f"{info}/METADATA").decode())
        scripts = archive.read(f"{info}/entry_points.txt").decode()
        licence = archive.read(f"{info}/licenses/LICENSE").decode()
    assert metadata["Name"] == "redistrib"
    assert metadata["Version"] == redistrib.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    core = [need.split(">")[0] for need in metadata.get_all("Requires-Dist") if "extra ==" not in need]
    assert not {"jax", "jaxlib", "mpi4py", "mpich", "torch"} & set(core)
    assert "redistrib = redistrib.cli:main" in scripts
    assert "Apache License" in licence


def test_the_wheel_installs_elsewhere(wheel: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), str(wheel)],
        check=True,
        timeout=300,
    )
    code = (
        "import redistrib, pathlib; "
        "print(pathlib.Path(redistrib.__file__).parent.parent, redistrib.DistType.parse('[3{x}12]'))"
    )
    assert python(code, PYTHONPATH=str(tmp_path)) == f"{tmp_path} [3{{x}}12]"


HEAVY = "{'jax', 'jaxlib', 'mpi4py', 'scipy', 'matplotlib', 'networkx', 'hypothesis'}"


def test_types_and_meshes_need_no_backend() -> None:
    code = (
        "import sys, redistrib as rd; rd.DistType.parse('[3{x}12]').check(rd.Mesh.of('x=4')); "
        f"print(sorted({HEAVY} & {{name.split('.')[0] for name in sys.modules}}))"
    )
    assert python(code, PYTHONPATH=str(ROOT)) == "[]"


def test_every_public_name_is_there() -> None:
    assert redistrib.__doc__
    for name in redistrib.__all__:
        assert getattr(redistrib, name) is not None
        assert name in dir(redistrib)
    with pytest.raises(AttributeError, match=exactly("module 'redistrib' has no attribute 'nothing'")):
        _ = redistrib.nothing


def missing(name: str) -> list[str]:
    """The words of a dotted name of which the package has nothing.

    >>> missing("redistrib.lang.mesh.Mesh.of"), missing("redistrib.lang.mash.Mesh")
    ([], ['mash', 'Mesh'])
    """
    words = name.split(".")
    for count in range(len(words), 0, -1):
        path = ROOT.joinpath(*words[:count])
        for module in (path.with_suffix(".py"), path / "__init__.py"):
            if module.exists():
                text = module.read_text()
                return [word for word in words[count:] if not re.search(rf"\b{word}\b", text)]
    return words


def test_the_modules_that_docstrings_and_comments_name_are_there() -> None:
    named = re.compile(r"(?<![\w.])redistrib(?:\.[A-Za-z_]\w*)+")
    names = set[str]()
    for path in (ROOT / "redistrib").rglob("*.py"):
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type in (tokenize.COMMENT, tokenize.STRING):
                    names.update(named.findall(token.string))
    assert len(names) > 100
    assert [name for name in sorted(names) if missing(name)] == []


def listed(docstring: str, section: str) -> list[str]:
    """The names that a section of a docstring describes.

    >>> listed("\\n\\n    Args:\\n        x, y: of\\n            these.\\n\\n    Raises:\\n        A: if so.", "Args")
    ['x', 'y']
    """
    _, _, text = docstring.partition(f"{section}:\n")
    indent = len(text) - len(text.lstrip(" "))
    names = re.findall(rf"^ {{{indent}}}(\*{{0,2}}\w+(?:, \*{{0,2}}\w+)*):", text.split("\n\n")[0], re.MULTILINE)
    return [name.lstrip("*") for group in names for name in group.split(", ")]


def test_docstrings_describe_parameters_and_attributes_that_are_there() -> None:
    """Attributes of classes with a base apart, which may have them."""
    wrong, count = list[str](), 0
    for path in (ROOT / "redistrib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = listed(ast.get_docstring(node, clean=False) or "", "Args")
                present = {inner.arg for inner in ast.walk(node.args) if isinstance(inner, ast.arg)}
            elif isinstance(node, ast.ClassDef) and all(ast.unparse(base) == "NamedTuple" for base in node.bases):
                names = listed(ast.get_docstring(node, clean=False) or "", "Attributes")
                present = {getattr(inner, word, "") for inner in ast.walk(node) for word in ("id", "attr", "name")}
            else:
                continue
            count += len(names)
            wrong += [f"{path}:{node.lineno} {node.name}: {name}" for name in names if name not in present]
    assert count > 2000
    assert wrong == []


@pytest.mark.parametrize(
    ("use", "not_loaded"),
    [
        ("import redistrib", ("jax", "numpy", "scipy", "rich", "mpi4py", "matplotlib", "asyncio")),
        ("import redistrib as rd; rd.synthesize('[4{x}8]', '[8]', 'x=2')", ("jax", "scipy.optimize", "rich")),
        ("import redistrib as rd; rd.reshard", ("matplotlib", "networkx", "scipy.optimize", "rich", "mpi4py")),
        ("import redistrib as rd; rd.reshard", ("redistrib.programs", "redistrib.resharding.through", "jax.extend")),
        ("import redistrib as rd; rd.search", ("matplotlib", "networkx", "scipy.optimize", "mpi4py")),
    ],
)
def test_what_is_slow_to_import_is_imported_where_it_is_used(use: str, not_loaded: tuple[str, ...]) -> None:
    code = f"import sys; {use}; print([name for name in {not_loaded!r} if name in sys.modules])"
    assert python(code, JAX_PLATFORMS="cpu", PYTHONPATH=str(ROOT)) == "[]"


def test_the_import_takes_less_than_half_of_numpys() -> None:
    """Of a processor, the quickest of five in turns: the others wait for files, or for each other."""

    def seconds(module: str) -> float:
        code = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
        return float(python(code, PYTHONPATH=str(ROOT)))

    ours, numpys = zip(*((seconds("redistrib"), seconds("numpy")) for _ in range(5)), strict=True)
    assert min(ours) < 0.5 * min(numpys)


def test_a_move_imports_no_pictures_and_no_solver() -> None:
    """Nor does the call itself."""
    code = """
import sys, jax, numpy as np, redistrib as rd
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("x",))
x = jax.device_put(np.ones((8, 8), "float32"), NamedSharding(mesh, P("x")))
rd.reshard({"a": x}, NamedSharding(mesh, P(None, "x")))
print([name for name in ("matplotlib", "networkx", "scipy.optimize", "rich") if name in sys.modules])
"""
    flags = "--xla_force_host_platform_device_count=2"
    assert python(code, JAX_PLATFORMS="cpu", XLA_FLAGS=flags, PYTHONPATH=str(ROOT)) == "[]"
