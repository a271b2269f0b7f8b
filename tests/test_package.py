"""The package as it is shipped: a wheel that builds and installs elsewhere, and an import that stays light."""

from __future__ import annotations

import os
import subprocess
import sys
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
