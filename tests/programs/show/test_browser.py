"""Pages in headless Chromium, driven by selenium: what the slider, the mouse, the wheel and the columns do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import redistrib as rd
from redistrib.programs.show.content import Content, Table, Timeline, TimelineBlock
from redistrib.programs.show.page import page
from redistrib.programs.show.plans import plan_data

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed; `make test-browser` does")
if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
    pytest.skip("chromium and chromedriver are not installed; `make test-browser` does", allow_module_level=True)

from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin  # noqa: E402

PLAN = rd.synthesize("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6}, machine="exact")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    for option in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1300,1100",
    ):
        options.add_argument(f"--{option}")
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def opened(browser: Any, text: str, folder: Path) -> None:
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    browser.get(path.as_uri())
    assert browser.execute_script("return document.body.dataset.ready") == "yes"
    assert browser.get_log("browser") == []


def text_of(browser: Any, name: str) -> str:
    return str(browser.find_element("id", name).text)


def slide(browser: Any, to: int) -> None:
    script = "const s = document.getElementById('slider'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))"
    browser.execute_script(script, to)


def test_the_slider_goes_from_the_source_over_every_round_to_the_target(browser: Any, tmp_path: Path) -> None:
    opened(browser, rd.view(PLAN).html, tmp_path)
    assert text_of(browser, "frame") == "source"
    assert len(browser.find_elements("css selector", "rect.tile")) == 24
    seen = []
    for k in range(int(browser.find_element("id", "slider").get_attribute("max")) + 1):
        slide(browser, k)
        seen.append(text_of(browser, "frame"))
    assert seen == [
        "source", *(f"step 1 exchange 1->0: round {k} of 5" for k in range(1, 6)), "after step 1: the target",
    ]  # fmt: skip
    tile = browser.find_element("css selector", "rect.tile")
    assert float(tile.get_attribute("width")) == pytest.approx(460 / 4)  # six rows of four
    browser.find_element("css selector", "button").click()
    assert text_of(browser, "frame") == "step 1 exchange 1->0: round 5 of 5"
    assert browser.get_log("browser") == []


def test_the_mouse_shows_who_sends_to_whom(browser: Any, tmp_path: Path) -> None:
    opened(browser, rd.view(PLAN).html, tmp_path)
    slide(browser, 2)
    tile = browser.find_element("css selector", "rect.tile[data-devices='7']")
    ActionChains(browser).move_to_element(tile).perform()
    shown = text_of(browser, "tip").splitlines()
    assert shown == ["device 7", "[3:6, 2:4]  6 elements, 24 B", "7 receives from 8 (8 B)", "7 sends to 2"]
    assert len(browser.find_elements("css selector", "line.msg")) == 2
    ActionChains(browser).move_to_element(browser.find_element("tag name", "h1")).perform()
    assert not browser.find_elements("css selector", "line.msg")
    assert not browser.find_element("id", "tip").is_displayed()


def test_a_timeline_zooms_by_the_wheel_and_tells_what_runs(browser: Any, tmp_path: Path) -> None:
    opened(browser, rd.view(PLAN).html, tmp_path)
    canvas = browser.find_element("id", "timeline")
    state = "const s = window.redistribTimeline; return [s.from, s.to, s.end]"
    start, stop, end = browser.execute_script(state)
    assert (start, stop) == (0, end)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    ActionChains(browser).scroll_from_origin(ScrollOrigin.from_element(canvas), 0, -200).perform()
    start, stop, end = browser.execute_script(state)
    assert 0 < start < stop < end
    ActionChains(browser).move_to_element_with_offset(canvas, 0, -20).perform()
    assert "us" in text_of(browser, "tip")
    ActionChains(browser).double_click(canvas).perform()
    assert browser.execute_script(state)[:2] == [0, end]


def test_five_thousand_operations_scroll_and_sort(browser: Any, tmp_path: Path) -> None:
    rows = [[(str(k), k), f"dot_{k}", ("", (k * 37) % 5000)] for k in range(5000)]
    blocks = [TimelineBlock(0, f"dot_{k}", "compute", k * 1e-6, 1e-6) for k in range(5000)]
    memory = {"device 0": [(k * 1e-6, k % 100) for k in range(5000)]}
    content = Content(
        "many", (), [Table("Operations", ["#", "operation", "bytes"], rows)], (), Timeline(["device 0"], blocks, memory)
    )
    opened(browser, page(content), tmp_path)
    table = browser.find_element("id", "table0")
    assert len(table.find_elements("css selector", "tbody tr")) < 100
    browser.execute_script("arguments[0].scrollTop = arguments[0].scrollHeight", table)
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert "dot_4999" in table.text
    table.find_elements("tag name", "th")[2].click()
    assert "dot_" in table.text
    first = table.find_elements("css selector", "tbody tr")[1].text.split()
    assert first[1] == f"dot_{next(k for k in range(5000) if (k * 37) % 5000 == 4999)}"
    assert browser.get_log("browser") == []


def test_a_choice_of_plans_shows_the_chosen(browser: Any, tmp_path: Path) -> None:
    other = rd.synthesize("[1{x}8]", "[8]", {"x": 8})
    opened(browser, page(Content("two", plans=[plan_data(PLAN), plan_data(other)])), tmp_path)
    assert len(browser.find_elements("css selector", "rect.tile")) == 24
    script = "const c = document.getElementById('plan'); c.value = 1; c.dispatchEvent(new Event('change'))"
    browser.execute_script(script)
    assert len(browser.find_elements("css selector", "rect.tile")) == 8
    slide(browser, browser.find_element("id", "slider").get_attribute("max"))
    assert len(browser.find_elements("css selector", "rect.tile")) == 1
    assert browser.find_element("css selector", "#tiles text").text == "0..7"


def test_a_narrow_window_shows_all_of_the_tiles_and_every_mark_of_time(browser: Any, tmp_path: Path) -> None:
    other = rd.synthesize("[1{x}8]", "[8]", {"x": 8})
    timeline = Timeline(["device 0"], [TimelineBlock(0, "dot", "compute", 0.0, 115.5e-6)])
    script = (
        "const w = CanvasRenderingContext2D.prototype, own = w.fillText; window.told = []; "
        "w.fillText = function (text, x, ...rest) { told.push([text, x, this.measureText(text).width]); "
        "own.call(this, text, x, ...rest) }; window.dispatchEvent(new Event('resize'))"
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        opened(browser, page(Content("two", plans=[plan_data(PLAN), plan_data(other)], timeline=timeline)), tmp_path)
        widths = browser.execute_script(
            "return [document.documentElement.scrollWidth, innerWidth, document.getElementById('tiles').clientWidth]"
        )
        assert widths[0] <= widths[1] == 400 and widths[2] < 400
        browser.execute_script(script)
        marks = [one for one in browser.execute_script("return told") if one[0].endswith("us")]
        assert len(marks) >= 2
        assert all(x + width <= following for (_, x, width), (_, following, _) in pairwise(marks))
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_summary_stands_first_and_rows_of_moves_are_tinted(browser: Any, tmp_path: Path) -> None:
    rows = [["dot", ("8", 8)], ["\u21c4 x", ("9", 9)]]
    summary = [Table("Time by layer", ["layer", "time"], rows)]
    content = Content(
        "program", (), [Table("Operations", ["operation", "time"], rows)], [plan_data(PLAN)], None, summary
    )
    opened(browser, page(content), tmp_path)
    heads = [head.text for head in browser.find_elements("css selector", "h2")]
    assert heads == ["Time by layer (2)", "Tiles by device", "Operations (2)"]
    colours = [
        cell.value_of_css_property("background-color")
        for cell in browser.find_elements("css selector", "#table0 td:first-child")
        if cell.text
    ]
    assert len(colours) == len(set(colours)) == 2
