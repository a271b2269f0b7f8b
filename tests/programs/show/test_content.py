"""What pages show agrees with the values that they are about."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import redistrib as rd
from redistrib.errors import ViewError
from redistrib.programs.show.content import Content
from redistrib.programs.show.entry import content_of
from redistrib.programs.show.plans import drawn_dims, timeline_of
from redistrib.programs.show.programs import DIMENSIONS, MARKS, MOVED
from redistrib.programs.time.constants import machine

PLAN = rd.synthesize("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6}, machine="exact")


def program() -> Any:
    def f(x: Any, up: Any, down: Any) -> Any:
        return jnp.tanh(x @ up) @ down

    args = jnp.ones((64, 256)), jnp.ones((256, 256)), jnp.ones((256, 64))
    return rd.distribute(f, args, "d=2,m=4", schedule=[rd.along("d", {"x": 0}), rd.along("m", {"up": 1, "down": 0})])


def data_in(page: str) -> Any:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def column(content: Content, table: int, name: str) -> list[float]:
    at = list(content.tables[table].columns).index(name)
    return [row[at][1] for row in content.tables[table].rows if isinstance(row[at], tuple)]


def test_a_plan_has_its_bytes_and_every_message() -> None:
    content = content_of(PLAN)
    assert sum(column(content, 0, "received in all")) == sum(PLAN.received) * 4 == 496
    (data,) = content.plans
    assert [len(step["messages"]) for step in data["steps"]] == [len(step.transfers()) for step in PLAN.steps]
    assert data["placements"][0]["start"] == PLAN.before.boxes.start.tolist()
    assert data["placements"][-1]["size"] == PLAN.after.boxes.size.tolist()


def test_the_timeline_of_a_plan_has_steps_rounds_and_links() -> None:
    plan = rd.synthesize("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6}, machine="exact")
    line = timeline_of(plan, machine("tpu"))
    steps = [block for block in line.blocks if block.kind == "step"]
    rounds = [block for block in line.blocks if block.kind == "round"]
    assert [block.name for block in steps] == ["1 exchange 1->0"]
    assert len(rounds) == 5
    assert sum(block.seconds for block in rounds) == pytest.approx(steps[0].seconds)
    assert "25 us" in steps[0].note and "24 B to a device" in steps[0].note
    hosts = rd.synthesize("[1{x}16, 16]", "[16, 1{x}16]", {"x": 16})
    assert set(timeline_of(hosts, machine("gpu")).rows) == {"between hosts", "inside a host"}


def test_dimensions_that_are_cut_most_are_drawn() -> None:
    plan = rd.synthesize("[8, 2{x}8, 8, 2{y}8]", "[8, 2{y}8, 8, 2{x}8]", {"x": 4, "y": 4})
    assert drawn_dims([plan.before, plan.after]) == [1, 3]
    assert drawn_dims([rd.synthesize("[4{x}8]", "[8]", "x=2").before]) == [0]


def test_a_program_has_its_bytes_its_lines_and_what_is_alive_at_the_peak() -> None:
    made = program()
    content = content_of(made)
    assert sum(column(content, 0, "received")) == made.program.received_bytes > 0
    assert sum(column(content, 1, "bytes")) == made.memory
    lines = [row[3] for row in content.tables[0].rows]
    assert any(str(line).startswith("test_content.py:") for line in lines)
    simulation = rd.simulate(made.program)
    line = content_of(simulation).timeline
    assert line is not None
    assert line.peak is not None
    assert line.peak[1] == max(simulation.peak_bytes.values())
    ends = [block.start + block.seconds for block in line.blocks if block.kind in ("compute", "move")]
    assert max(ends) == pytest.approx(simulation.seconds)


def test_other_values_have_pages() -> None:
    mesh = rd.to_jax(rd.synthesize("[4{x}8]", "[8]", "x=2"), __import__("jax").make_mesh((2,), ("x",))).mesh
    tree = {"a": jnp.ones((8, 8)), "b": jnp.ones((8, 8))}
    placed = rd.reshard(tree, NamedSharding(mesh, PartitionSpec("x")))
    plan = rd.reshard_plan(placed, NamedSharding(mesh, PartitionSpec(None, "x")))
    assert sum(column(content_of(plan), 0, "received")) == plan.received_bytes
    search = rd.search(lambda x, w: x @ w, (jnp.ones((8, 8)), jnp.ones((8, 8))), "x=2")
    assert column(content_of(search), 0, "peak") == [one.memory for one in search]
    assert content_of(search[0]).timeline is not None
    assert content_of(plan).lines[0].startswith("2 leaves in 1 launch; ")
    diagnosis = rd.diagnose(lambda x: x + 1, jnp.ones(8))
    assert content_of(diagnosis).lines[0] == "0 B received by 1 device"
    assert "nothing is communicated" in " ".join(content_of(diagnosis).lines)
    for value in (plan, search, diagnosis, rd.simulate(PLAN), PLAN, program().program):
        text = value._repr_html_()
        _Balanced().feed(text)
        assert "http://" not in text
        assert "https://" not in text


def step(params: Any, x: Any) -> Any:
    """Two layers by hand, and a loop of three more."""

    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w)

    for w in params["layers"]:
        x = layer(x, w)
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, params["stack"])
    return x @ params["head"]["w"]


def searched() -> Any:
    square = jnp.ones((32, 32))
    params = {"layers": [square, square], "stack": jnp.ones((3, 32, 32)), "head": {"w": square}}
    return rd.search(step, (params, square), "x=2")


def test_a_search_begins_with_where_arguments_lie_and_with_time_by_kind_and_by_layer() -> None:
    found = searched()
    content = content_of(found)
    arguments, kinds, layers = content.summary
    titles = ["Argument to PartitionSpec", "Time by kind of work", "Time by layer"]
    assert [table.title for table in content.summary] == titles
    specs = dict(zip(_names(found), jax.tree.leaves(found.distributed.in_shardings), strict=True))
    assert {row[0]: row[1] for row in arguments.rows} == {name: str(one.spec) for name, one in specs.items()}
    whole = rd.simulate(found[0].program, found[0].machine).seconds
    for table in (kinds, layers):
        assert sum(row[2][1] for row in table.rows) == pytest.approx(whole)
    assert [row[0] for row in layers.rows] == ["layers/0", "layers/1", "scan, loop x 3", "params/head/w"]
    assert {"dot_general": 6, "tanh": 5}.items() <= {row[0]: row[1][1] for row in kinds.rows}.items()
    page = data_in(rd.view(found).html)
    assert [table["title"] for table in page["summary"]] == titles


def _names(found: Any) -> list[str]:
    return ["params/head/w", "params/layers/0", "params/layers/1", "params/stack", "x"]


def test_operations_have_their_layer_those_of_loops_are_listed_and_moves_are_marked() -> None:
    (table,) = [table for table in content_of(searched()).tables if table.title == "Operations"]
    listed = [(row[1], row[2]) for row in table.rows if not str(row[1]).startswith(MOVED)]
    loop = "scan, loop x 3"
    assert listed == [
        *(("dot_general", "layers/0"), ("tanh", "layers/0"), ("dot_general_1", "layers/1"), ("tanh_1", "layers/1")),
        *((loop, loop), ("dot_general_2", loop), ("tanh_2", loop), ("dot_general_3", "params/head/w")),
    ]
    moved = [row for row in content_of(program()).tables[0].rows if row[7]]
    assert [str(row[1]).startswith(MOVED) for row in moved] == [True]


def test_marks_and_names_of_dimensions_are_told_where_they_are_met() -> None:
    by_hand = rd.partition(rd.nest("ij,jk->ik", (8, 8, 8)), {"matmul": {"i": 4}})
    for made, told in ((program(), {MARKS, DIMENSIONS}), (by_hand, set[str]())):
        assert {*content_of(made).lines} & {MARKS, DIMENSIONS} == told


def test_a_table_of_one_row_says_nothing_and_is_left_out() -> None:
    args = jnp.ones((8, 8)), jnp.ones((8, 8))
    one = rd.distribute(lambda x, w: x @ w, args, "d=2", schedule=[rd.along("d", {"x": 0})])
    kinds, layers = content_of(one).summary
    assert not kinds.rows and not layers.rows
    kinds, layers = content_of(program()).summary
    assert len(kinds.rows) > 1 and not layers.rows


def test_a_tree_has_every_leaf_by_its_name() -> None:
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2])
    tree = {"layers": [{"w": jnp.ones((8, 8))} for _ in range(3)], "step": jnp.ones((2,))}
    placed = rd.reshard(tree, NamedSharding(mesh, PartitionSpec("x")))
    plan = rd.reshard_plan(placed, {"layers/*": PartitionSpec(None, "x"), "*": PartitionSpec("x")}, mesh=mesh)
    content = content_of(plan)
    steps = {row[0]: row[4] for row in content.tables[0].rows}
    assert steps == {"layers/0/w": "alltoall", "layers/1/w": "alltoall", "layers/2/w": "alltoall", "step": "stays"}
    assert [data["name"] for data in content.plans] == ["layers/0/w and 2 more: [4{x}8, 8] -> [8, 4{x}8]"]


def test_columns_of_notebooks_stand_apart_with_heads_above_their_cells() -> None:
    text = PLAN._repr_html_()
    assert text.count("padding:2px 14px 2px 0") == text.count("<td") + text.count("<th ")
    sides = [re.findall(rf"<{tag} style=[^>]*text-align:(\w+)", text) for tag in ("th", "td")]
    assert sides[0] == sides[1][: len(sides[0])]


class _Balanced(HTMLParser):
    """Raises where a tag ends that has not begun."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("meta", "link", "rect", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag


def test_texts_of_users_end_no_script_and_no_tag() -> None:
    def hostile(x: Any) -> Any:
        return x * 2

    hostile.__name__ = "</script><b>&"
    made = rd.distribute(hostile, (jnp.ones((8, 8)),), "x=2", schedule=[])
    page = rd.view(made.program).html
    assert page.count("</script>") == 2
    assert "<b>" not in page.replace("<body>", "")
    assert data_in(page)["title"] == made.program.name
    assert "</script><b>" not in made.program._repr_html_()


def test_a_page_needs_no_network(tmp_path: Any) -> None:
    page = rd.view(PLAN).save(tmp_path / "page.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_plans_over_many_devices_say_why_nothing_is_drawn() -> None:
    plan = rd.synthesize("[2{x}4096, 8]", "[4096, 8]", {"x": 2048})
    assert "at most 1,024 devices are drawn" in content_of(plan).plans[0]["note"]


def test_what_has_no_page_is_refused() -> None:
    with pytest.raises(ViewError, match="there is no page of list"):
        rd.view([PLAN])


def test_the_command_writes_a_page(tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    from redistrib.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    (tmp_path / "made.py").write_text(
        "import redistrib as rd\ndef plan(): return rd.synthesize('[4{x}8]', '[8]', 'x=2')\n"
    )
    for what in (["plan.json"], ["made.py:plan"], ["[4{x}8]", "[8]", "--mesh", "x=2"]):
        assert main(["view", *what, "-o", "out.html"]) == 0
        assert capsys.readouterr().out == "wrote out.html\n"
        assert data_in((tmp_path / "out.html").read_text())["plans"]
    assert main(["view", "missing.json"]) == 2
    assert "no file 'missing.json'" in capsys.readouterr().err
