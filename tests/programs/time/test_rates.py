"""`redistrib rates` fits the rates of a device to timed operations, and `redistrib simulate --rates` takes them."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path

import jax
import pytest

import redistrib as rd
from redistrib.api import calibrate_rates
from redistrib.cli import main
from redistrib.errors import DtypeError, ProfileError
from redistrib.programs.ir.text import to_text
from redistrib.programs.ir.work import CLASSES
from redistrib.programs.time.constants import machine
from redistrib.programs.time.fit import OperationSample, fit_rates
from redistrib.programs.time.machine import Machine, Rates
from redistrib.programs.time.operations import measure_operations
from redistrib.programs.time.rate_files import load_rates, load_samples
from redistrib.report import seconds_text
from tests.programs.time.mlp import gpipe

TRUE = Rates(1e-5, 1e11, 1e13)
SIZES = [(10**6, 10**6), (10**8, 10**7), (10**9, 10**8), (10**6, 10**10), (10**7, 10**12), (10**5, 10**11)]


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    path = tmp_path / "timed.csv"
    lines = [f"one,{size},{flops},{TRUE.seconds(size, flops)!r}" for size, flops in SIZES]
    path.write_text("\n".join(["operation,bytes,flops,seconds", *lines, ""]))
    return path


def test_the_command_finds_the_rates_of_a_file(
    samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rates.json"
    assert main(["rates", str(samples), "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == f"wrote {out}\n"
    assert "launch 10.0 us, 100.00 GB/s, 10,000.00 GFLOP/s, combined as roofline" in said.err
    assert said.err.rstrip().endswith("median residual 0%")
    found = load_rates(out)
    for field in ("launch", "bandwidth", "flops"):
        assert math.isclose(getattr(found, field), getattr(TRUE, field), rel_tol=1e-6), field
    assert main(["rates", str(samples), "--form", "sum"]) == 0
    assert json.loads(capsys.readouterr().out)["form"] == "sum"


def test_a_simulation_takes_them(samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, rates = tmp_path / "gpipe.txt", tmp_path / "rates.json"
    program.write_text(to_text(gpipe(4)))
    assert main(["rates", str(samples), "-o", str(rates)]) == 0
    capsys.readouterr()
    seconds = {}
    for name in ("v100", "h100"):  # the rates of element types and of single operations do not count beside them
        assert main(["simulate", str(program), "--machine", name, "--rates", str(rates)]) == 0
        seconds[name] = capsys.readouterr().out
        links = rd.simulate(gpipe(4), name).machine.links
        kernels = {"fuses": True, "fuses_products": False} if name == "h100" else {}
        expected = rd.simulate(gpipe(4), Machine(name, load_rates(rates), links, **kernels)).seconds
        assert f"gpipe on {name}: {seconds_text(expected)}" in seconds[name]


def test_json_and_back() -> None:
    path_text = TRUE.to_json()
    assert json.loads(path_text) == {
        "format": "redistrib-rates", "version": 1, "launch": 1e-5, "bandwidth": 1e11, "flops": 1e13, "form": "roofline",
    }  # fmt: skip


def test_operations_are_timed_on_a_device() -> None:
    timed = measure_operations(jax.devices()[0], products=(8, 16), sums=(64, 128), classes=())
    assert [one.name for one in timed] == ["product 8", "product 16", "sum 64", "sum 128"]
    assert [(one.bytes, one.flops) for one in timed] == [(768, 1024), (3072, 8192), (768, 64), (1536, 128)]
    assert all(one.seconds > 0 for one in timed)
    fit = calibrate_rates([OperationSample(*one) for one in timed])
    assert fit.rates.launch >= 0 and "product 16" in str(fit)  # 0 where larger operations took no longer


def test_every_class_of_work_is_timed() -> None:
    timed = measure_operations(jax.devices()[0], products=(8,), sums=(64,), classes=(1 << 16,), clock=time.process_time)
    assert {one.work for one in timed} == {"", *CLASSES}
    assert all(one.seconds > 0 for one in timed)
    samples = [OperationSample(size, flops, TRUE.seconds(size, flops)) for size, flops in SIZES]
    slow = [OperationSample(*one._replace(seconds=1000 * one.seconds)) for one in timed]  # none is bound by memory
    fit = calibrate_rates([*samples, *slow])
    assert {*fit.rates.classes} == {*CLASSES} and all(f"\n{name}: " in str(fit) for name in CLASSES)


def test_classes_are_fitted_beside_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = replace(TRUE, classes={"function": 1e10, "transpose": 2e9})
    sized = [(size, flops, "") for size, flops in SIZES]
    sized += [(10**3, flops, "function") for flops in (10**7, 10**8)] + [(10**8, 0, "transpose")]
    lines = [f"{size},{flops},{own.seconds(size, flops, work)!r},{work}" for size, flops, work in sized]
    path, out = tmp_path / "timed.csv", tmp_path / "rates.json"
    path.write_text("\n".join(["bytes,flops,seconds,work", *lines]))
    assert main(["rates", str(path), "-o", str(out)]) == 0
    assert "\nfunction: 10.00 GFLOP/s\ntranspose: 2.00 GB/s\n" in capsys.readouterr().err
    found = load_rates(out)
    assert found.classes == pytest.approx(own.classes, rel=1e-6)
    for name in ("launch", "bandwidth", "flops"):
        assert math.isclose(getattr(found, name), getattr(TRUE, name), rel_tol=1e-6), name


def test_element_types_have_rates_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{size},{flops},{TRUE.seconds(size, flops)!r}," for size, flops in SIZES]
    lines += [f"1000,{flops},{1e-5 + flops / 4e13!r},bfloat16" for flops in (10**12, 10**13)]
    path, out = tmp_path / "timed.csv", tmp_path / "rates.json"
    path.write_text("\n".join(["bytes,flops,seconds,dtype", *lines]))
    assert main(["rates", str(path), "-o", str(out)]) == 0
    assert "\nbfloat16: 40,000.00 GFLOP/s\n" in capsys.readouterr().err
    found = load_rates(out)
    assert found.dtypes == pytest.approx({"bfloat16": 4e13}) and math.isclose(found.flops, 1e13, rel_tol=1e-6)
    on = replace(machine("h100"), rates=found, flops={})
    for dtype, flops in (("bfloat16", 4e13), ("float32", 1e13)):
        assert math.isclose(on.seconds_of("dot_general", [dtype], 8, 10**13), 1e-5 + 1e13 / flops, rel_tol=1e-6)
    assert machine("h100").rates_of("dot_general", ["float8_e4m3fn"]).flops == 1979e12


def test_a_class_that_takes_no_longer_than_its_bytes_has_no_rate() -> None:
    """Else the price of a kernel would have the seconds of its bytes twice."""
    timed = [OperationSample(size, flops, TRUE.seconds(size, flops)) for size, flops in SIZES]
    for factor, kept in ((1.1, []), (2.0, ["function"])):
        slow = OperationSample(10**9, 10**9, 1e-5 + factor * 1e9 / TRUE.bandwidth, work="function")
        assert [*fit_rates([*timed, slow], "roofline").classes] == kept


# ------------------------------------------------------------------------------------------ refusals


def test_classes_that_are_none() -> None:
    with pytest.raises(ProfileError, match=r"1 is no rate of a class of work 'magic'; give more than 0 to one of conv"):
        replace(TRUE, classes={"magic": 1})
    with pytest.raises(ProfileError, match="0 is no rate of a class of work 'sort'"):
        replace(TRUE, classes={"sort": 0})
    with pytest.raises(ProfileError, match=r"no class of work 'magic'; take one of convolution, .*, or none"):
        calibrate_rates([OperationSample(1, 1, 1.0, work="magic")])
    with pytest.raises(ProfileError, match=r"rates need three samples or more .*, got 1 beside those of classes"):
        calibrate_rates([OperationSample(1, 1, 1.0), *[OperationSample(1, 1, 1.0, work="sort")] * 3])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("bytes,seconds\n1,2\n", "has no column 'flops'; its first line names bytes, flops and seconds"),
        ("", "has no column 'bytes'; its first line names bytes, flops and seconds"),
        ("bytes,flops,seconds\n1,2,x\n", "line 2: seconds is 'x'; give a number from 0 on"),
        ("bytes,flops,seconds\n1,2\n", "line 2: seconds is None; give a number from 0 on"),
        ("bytes,flops,seconds\n1,-2,1\n", "line 2: flops is '-2'; give a number from 0 on"),
        ("bytes,flops,seconds\n1,inf,1\n", "line 2: flops is 'inf'; give a number from 0 on"),
        (
            "bytes,flops,seconds,dtype\n1,2,1,float99\n",
            f"line 2: {DtypeError('float99')}",
        ),
        (
            "bytes,flops,seconds,work\n1,2,1,x\n",
            f"line 2: no class of work 'x'; take one of {', '.join(CLASSES)}",
        ),
    ],
)
def test_samples_that_are_none(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "timed.csv"
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        load_samples(path)
    assert str(caught.value).endswith(why)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1]", "has no rates; write some with `redistrib rates -o "),
        ("{", "has no rates; write some with `redistrib rates -o "),
        ('{"format": "redistrib-rates", "version": 1, "launch": true}', "launch is True; write rates with"),
        (TRUE.to_json().replace("roofline", "max"), "rates are combined as roofline or sum, not as 'max'"),
        (TRUE.to_json().replace("1e-05", "-1"), "rates are a launch of no less than 0 seconds"),
        (
            replace(TRUE, classes={"sort": 1e9}).to_json().replace("1000000000.0", '"1"'),
            "sort is '1'; write rates with",
        ),
        (TRUE.to_json().replace("}", ', "classes": 1}'), "classes are 1; write rates with"),
        (TRUE.to_json().replace("}", ', "dtypes": {"float99": 1}}'), "float99"),
        (TRUE.to_json().replace("}", ', "dtypes": {"float32": 0}}'), "0.0 is no rate of float32"),
        (TRUE.to_json().replace("}", ', "classes": {"x": 1}}'), "1.0 is no rate of a class of work 'x'"),
    ],
)
def test_rates_that_are_none(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        load_rates(path)
    assert why in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    for read in (load_samples, load_rates):
        with pytest.raises(ProfileError, match=r"cannot read .*none: No such file"):
            read(tmp_path / "none")
        with pytest.raises(ProfileError, match="is not text in UTF-8"):
            read(tmp_path / "binary")
