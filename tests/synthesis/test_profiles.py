"""Profiles as a stranger could write them: read strictly, refused with one error."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redistrib import errors
from redistrib.api import load_profile
from redistrib.cost.fit import FASTEST, fit_profile
from redistrib.cost.latency import KINDS, Latency, LatencyBandwidth
from redistrib.cost.presets import PRESETS, cost_model
from redistrib.plans.samples import Sample
from redistrib.programs.time.constants import MACHINES, machine
from tests.messages import exactly

GOOD = {**json.loads(PRESETS["gpu"].to_json()), "transports": {"packed": [1e-5, 0, 1e-9]}}  # type: ignore[attr-defined]
GOOD |= {"host_bandwidth": 5e10, "link_bandwidth": 5e10, "swap_bandwidth": 5e10}
WRONG: list[Any] = [
    None, True, False, 0, -1, 3.5, float("nan"), float("inf"), -float("inf"), 1e-320, 1e40, 10**400, 10**4000, "5",
    "x", [], [1, 2], [-1, 0], [float("nan"), 1], ["1", "2"], {}, {"allgather": [1, 2]}, {"x": float("nan")}, {"x": 0},
]  # fmt: skip
RIGHT: dict[str, list[Any]] = {
    "version": [True],
    "name": ["5", "x"],
    "source": ["5", "x"],
    "bandwidth": [3.5],
    "memory_bandwidth": [3.5],
    "slow_bandwidth": [None, 3.5],
    "host_bandwidth": [None, 3.5],
    "swap_bandwidth": [None, 3.5],
    "link_bandwidth": [None, 3.5],
    "devices_per_host": [None],
    "axis_bandwidth": [{}],
    "one_call": [None, True, False],
    "transports": [{}],
}


@pytest.mark.parametrize("field", GOOD)
def test_a_wrong_value_is_refused(field: str) -> None:
    for value in WRONG:
        text = json.dumps({**GOOD, field: value})
        if any(value is right or (type(value) is type(right) and value == right) for right in RIGHT.get(field, [])):
            assert LatencyBandwidth.from_json(text)
            continue
        with pytest.raises(errors.ProfileError) as caught:
            LatencyBandwidth.from_json(text)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "latency", [[-1, 0], [float("nan"), 0], [0, float("inf")], [True, 0], [1], [1, 2, 3], "12", 1, None]
)
def test_a_wrong_latency_is_refused(latency: Any) -> None:
    with pytest.raises(errors.ProfileError, match="allgather"):
        LatencyBandwidth.from_json(json.dumps({**GOOD, "latency": {**GOOD["latency"], "allgather": latency}}))


def test_the_profile_of_a_wrong_latency_is_named() -> None:
    latency = {**PRESETS["cpu"].latency, "alltoall": Latency(-1.0, 0.0)}
    with pytest.raises(errors.ProfileError) as caught:
        replace(PRESETS["cpu"], name="mine", latency=latency)
    assert str(caught.value) == (
        "profile 'mine' has for 'alltoall' the latency Latency(launch=-1.0, member=0.0); a latency is a number of "
        "seconds from 0 to 1e+30"
    )


def test_what_takes_no_time_has_the_largest_bandwidth_that_is_believed() -> None:
    samples = [Sample(kind, 2, size, 0, 1e-5, 0.0) for kind in KINDS for size in (1000, 2000)]
    profile = fit_profile(samples, "free", "").profile
    assert profile.bandwidth == pytest.approx(FASTEST) and profile.memory_bandwidth == pytest.approx(FASTEST)


def test_a_fit_says_how_far_it_is_off() -> None:
    samples = [Sample(kind, 2, size, 0, 1e-5 + size / 1e9, 2e-6) for kind in KINDS for size in (1000, 2_000_000)]
    fit = fit_profile(samples, "mine", "")
    fit = replace(fit, predicted=tuple(s.seconds * (1.25 if k % 2 else 0.79) for k, s in enumerate(samples)))
    title, head, _, *rows, middle = str(fit).splitlines()
    assert (title, head.split()) == ("fit", ["collective", "bytes", "us", "+-", "model", "us", "residual"])
    assert [row.split() for row in rows[:2]] == [
        ["allgather", "of", "2", "1,000", "11", "2", "9", "-21%"],
        ["allgather", "of", "2", "2,000,000", "2,010", "2", "2,512", "+25%"],
    ]
    assert len(rows) == len(samples)
    assert middle == "median residual 23%"


REFUSED = {
    '"bandwidth": 0': "profile 'gpu' has a bandwidth of 0; a bandwidth is a positive number of bytes per second, from "
    "1e-30 to 1e+30",
    '"bandwidth": NaN': "profile 'gpu' has a bandwidth of nan; a bandwidth is a positive number of bytes per second, "
    "from 1e-30 to 1e+30",
    '"devices_per_host": -4': "profile 'gpu' has -4 devices per host; a host has from 1 to 1048576",
    '"one_call": "no"': "the profile is malformed: one_call is 'no'; write one with `redistrib calibrate`",
    '"transports": {"packed": [1, 2]}': "the profile is malformed: the seconds of transport packed is [1, 2]; write "
    "one with `redistrib calibrate`",
    '"transports": {"packed": [0, 0, -1]}': "profile 'gpu' has for transport 'packed' the figures (0, 0, -1); each is "
    "a number of seconds from 0 to 1e+30",
    '"axis_bandwidth": {"x": "1"}': "the profile is malformed: the bandwidth of axis x is '1'; write one with "
    "`redistrib calibrate`",
}


@pytest.mark.parametrize("field", REFUSED)
def test_the_message_names_field_and_value(field: str) -> None:
    with pytest.raises(errors.ProfileError) as caught:
        LatencyBandwidth.from_json(json.dumps(GOOD)[:-1] + f", {field}}}")
    assert str(caught.value) == REFUSED[field]


NO_PROFILE = "this is no redistrib-profile of version 1; write one with `redistrib calibrate`"
DEEP = "a profile must be JSON that is 3 deep, but this is nested too deep to be read"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a profile must be JSON, but Expecting value: line 1 column 1 (char 0)"),
        ("null", NO_PROFILE),
        ("5", NO_PROFILE),
        ("[" * 100_000, DEEP),
        ('{"a":' * 100_000, DEEP),
        ("9" * 5000, "a profile must be JSON, but Exceeds the limit"),
        ('"' * 100_000, "a profile must be JSON, but Extra data: line 1 column 3 (char 2)"),
        (None, "a profile must be JSON, but the JSON object must be str, bytes or bytearray, not NoneType"),
    ],
    ids=lambda text: str(len(text or "")),
)
def test_what_is_no_profile_is_refused(text: Any, says: str) -> None:
    with pytest.raises(errors.ProfileError) as caught:
        LatencyBandwidth.from_json(text)
    assert str(caught.value).startswith(says)
    assert len(str(caught.value)) < 200


def test_a_machine_is_a_name_a_model_a_file_or_an_object(tmp_path: Path) -> None:
    profile = LatencyBandwidth.from_json(json.dumps(GOOD))
    path = tmp_path / "profile.json"
    path.write_text(profile.to_json())
    (tmp_path / "other").write_text(profile.to_json())
    for given in (profile, path, str(path), str(tmp_path / "other"), GOOD):
        assert cost_model(given) == profile
    assert profile.transports == {"packed": (1e-5, 0, 1e-9)}
    assert {name: cost_model(name) for name in MACHINES} == {name: found.links for name, found in MACHINES.items()}
    assert cost_model(MACHINES["h100"]) is cost_model("h100") is machine("h100").links
    for wrong in (7, [1], None, "mine"):
        with pytest.raises(errors.ChoiceError, match=f"^no machine {re.escape(repr(wrong))}; give a CostModel, the "):
            cost_model(wrong)  # type: ignore[arg-type]
    for odd in ({"x": {1}}, {1: object()}):
        text = f"{odd!r} is no profile; give what `redistrib calibrate` writes"
        with pytest.raises(errors.ProfileError, match=exactly(text)):
            cost_model(odd)  # type: ignore[arg-type]
    with pytest.raises(
        errors.ProfileError,
        match=exactly("this is no redistrib-profile of version 1; write one with `redistrib calibrate`"),
    ):
        cost_model({})


def test_the_largest_file_that_is_read(tmp_path: Path) -> None:
    profile = LatencyBandwidth.from_json(json.dumps(GOOD))
    path, text = tmp_path / "profile.json", profile.to_json()
    path.write_text(text + " " * (2**24 - len(text)))
    assert load_profile(path) == profile
    path.write_text(text + " " * (2**24 + 1 - len(text)))
    with pytest.raises(errors.ProfileError, match=exactly(f"{path} is no profile: it has more than 16,777,216 bytes")):
        load_profile(path)


def test_files_that_are_no_profile_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.ProfileError) as caught:
        load_profile(path)
    assert str(caught.value) == f"{path} is no profile: it is not text in UTF-8"
    with pytest.raises(errors.ProfileError) as caught:
        load_profile(Path("/dev/zero"))
    assert str(caught.value) == "/dev/zero is no profile: it has more than 16,777,216 bytes"


def test_the_figures_of_a_preset_are_those_that_its_source_names() -> None:
    """Sources count links in bits per second, for both directions of NVLink, and for all the chips of a host."""
    tpu, gpu = PRESETS["tpu"], PRESETS["gpu"]
    assert tpu.source == (
        "Cloud TPU v5e system architecture: 1,600 Gbit/s interchip interconnect per chip over 4 links, "
        "819 GB/s HBM, and between slices 2 x 100 Gbit/s of data center network for the 8 chips of a host"
    )
    assert (tpu.bandwidth, tpu.link_bandwidth) == (1600e9 / 8, 1600e9 / 8 / 4)
    assert (tpu.memory_bandwidth, tpu.slow_bandwidth) == (819e9, 2 * 100e9 / 8 / 8)
    assert gpu.source == (
        "NVIDIA DGX H100: 900 GB/s NVLink both ways, 3.35 TB/s HBM3, a 400 Gbit/s adapter per GPU between hosts"
    )
    assert (gpu.bandwidth, gpu.memory_bandwidth, gpu.slow_bandwidth) == (900e9 / 2, 3.35e12, 400e9 / 8)
    cpu = PRESETS["cpu"]
    assert cpu.source == (
        "chosen so that the plans picked come closest to the fastest of those timed, on 136 problems of 8 and 24 "
        "virtual XLA:CPU devices on 2 cores, where a round is a meeting of all; between processes, 10 Gbit/s Ethernet, "
        "on which gloo sends one way at a time between two devices; run `redistrib calibrate`"
    )
    assert (cpu.bandwidth, cpu.memory_bandwidth, cpu.slow_bandwidth) == (4e9, 2e9, 1e9)
