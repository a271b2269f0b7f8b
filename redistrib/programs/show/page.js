"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const app = document.getElementById("app"), tip = document.getElementById("tip");
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};
const drawn = (tag, attributes, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
};
const grouped = number => Math.round(number).toLocaleString("en-US");
const bytes = size => {
  const k = size >= 1024 ? Math.min(5, Math.floor(Math.log2(size) / 10)) : 0;
  return (size / 1024 ** k).toFixed(1).replace(".0", "") + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][k];
};
const time = seconds => {
  const [scale, unit] = seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e-3, "ms"] : [1e-6, "us"];
  return +(seconds / scale).toPrecision(4) + " " + unit;
};
const hue = (device, devices) => `hsl(${Math.round(360 * device / Math.max(1, devices))} 65% 72%)`;
const showTip = (event, text) => {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.min(event.clientX + 14, innerWidth - box.width - 6) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - box.height - 6) + "px";
};
const hideTip = () => { tip.hidden = true; };

app.append(make("h1", { textContent: data.title }));
for (const line of data.lines) app.append(make("p", { textContent: line }));

// ---------------------------------------------------------------- tiles, step by step

const SIZE = 460;

function framesOf(plan) {
  const frames = [{ text: "source", placement: 0, step: null, round: null }];
  plan.steps.forEach((step, k) => {
    const rounds = Math.min(step.rounds, 64);
    for (let round = 0; round < rounds; round++)
      frames.push({ text: `step ${k + 1} ${step.name}: round ${round + 1} of ${step.rounds}`, placement: k, step: k, round });
    if (!rounds) frames.push({ text: `step ${k + 1} ${step.name}`, placement: k, step: k, round: null });
    frames.push({ text: k === plan.steps.length - 1 ? `after step ${k + 1}: the target` : `after step ${k + 1}`, placement: k + 1, step: null, round: null });
  });
  return frames;
}

function rectangle(plan, start, size) {
  const spans = plan.dims.map(d => [start[d] / plan.shape[d] * SIZE, size[d] / plan.shape[d] * SIZE]);
  while (spans.length < 2) spans.unshift([0, SIZE]);
  return { y: spans[0][0], height: spans[0][1], x: spans[1][0], width: spans[1][1] };
}

const boxText = (start, size) => "[" + start.map((s, d) => `${s}:${s + size[d]}`).join(", ") + "]";
const volume = size => size.reduce((a, b) => a * b, 1);

function planView() {
  const section = make("section");
  section.append(make("h2", { textContent: "Tiles by device" }));
  let plan = data.plans[0], frames = framesOf(plan);
  const choice = make("select", { id: "plan" });
  data.plans.forEach((one, k) => choice.append(make("option", { value: k, textContent: one.name })));
  const slider = make("input", { type: "range", id: "slider", min: 0, value: 0 });
  const label = make("span", { id: "frame" });
  const back = make("button", { textContent: "◀", title: "step back" }), on = make("button", { textContent: "▶", title: "step on" });
  const svg = drawn("svg", { width: SIZE, height: SIZE, viewBox: `0 0 ${SIZE} ${SIZE}`, id: "tiles" });
  const side = make("div", { className: "side", id: "side" });
  if (data.plans.length > 1) section.append(make("div", { className: "bar" }, choice));
  section.append(make("div", { className: "bar" }, back, slider, on, label), make("div", { className: "stage" }, svg, side));

  function draw() {
    const frame = frames[+slider.value];
    label.textContent = frame.text;
    svg.replaceChildren();
    side.replaceChildren();
    hideTip();
    if (!plan.placements.length) { side.append(make("p", { textContent: plan.note })); return; }
    const tiles = plan.placements[frame.placement], step = frame.step === null ? null : plan.steps[frame.step];
    const live = step ? step.messages.filter(m => frame.round === null || m[2] === frame.round) : [];
    const groups = new Map();
    for (const device of tiles.holders) {
      const key = tiles.start[device] + "|" + tiles.size[device];
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(device);
    }
    const middle = new Map(), marks = [];
    for (const devices of groups.values()) {
      const first = devices[0], box = rectangle(plan, tiles.start[first], tiles.size[first]);
      const tile = drawn("rect", { ...box, class: "tile", fill: hue(first, plan.devices), "data-devices": devices.join(",") });
      devices.forEach((device, k) => middle.set(device, [box.x + box.width * (k + .5) / devices.length, box.y + box.height / 2]));
      tile.addEventListener("mousemove", event => showTip(event, about(devices, tiles, live)));
      tile.addEventListener("mouseenter", () => { tile.classList.add("on"); arrows(devices, live, marks); });
      tile.addEventListener("mouseleave", () => { tile.classList.remove("on"); hideTip(); for (const mark of marks.splice(0)) mark.remove(); });
      svg.append(tile);
      const text = devices.length <= 3 ? devices.join(",") : `${first}..${devices[devices.length - 1]}`;
      const points = Math.min(15, 1.6 * box.width / text.length, .9 * box.height);
      if (points >= 5) svg.append(drawn("text", { x: box.x + box.width / 2, y: box.y + box.height / 2, "font-size": points, "text-anchor": "middle", "dominant-baseline": "central" }, text));
    }
    function arrows(devices, messages, into) {
      const own = new Set(devices);
      for (const [sender, receiver, , start, size] of messages) {
        if (!own.has(receiver) && !own.has(sender)) continue;
        const share = drawn("rect", { ...rectangle(plan, start, size), class: "share" });
        const [x1, y1] = middle.get(sender) || [0, 0], [x2, y2] = middle.get(receiver) || [0, 0];
        const line = drawn("line", { x1, y1, x2, y2, class: "msg" });
        svg.append(share, line);
        into.push(share, line);
        if (into.length > 400) break;
      }
    }
    function about(devices, tiles, messages) {
      const first = devices[0], size = volume(tiles.size[first]);
      const lines = [`device ${devices.slice(0, 12).join(", ")}${devices.length > 12 ? ", …" : ""}`,
        `${boxText(tiles.start[first], tiles.size[first])}  ${grouped(size)} elements, ${bytes(size * plan.itemsize)}`];
      for (const device of devices.slice(0, 6)) {
        const gets = messages.filter(m => m[1] === device), gives = messages.filter(m => m[0] === device);
        if (gets.length) lines.push(`${device} receives from ${gets.slice(0, 10).map(m => `${m[0]} (${bytes(volume(m[4]) * plan.itemsize)})`).join(", ")}${gets.length > 10 ? ", …" : ""}`);
        if (gives.length) lines.push(`${device} sends to ${gives.slice(0, 10).map(m => m[1]).join(", ")}${gives.length > 10 ? ", …" : ""}`);
      }
      return lines.join("\n");
    }
    if (step) {
      const total = live.reduce((sum, m) => sum + volume(m[4]), 0) * plan.itemsize;
      side.append(make("p", { textContent: `${step.name}${step.groups ? ", " + step.groups : ""}` }));
      side.append(make("p", { textContent: step.note || (live.length ? `${grouped(live.length)} messages, ${bytes(total)} in all` : "nothing is sent") }));
      const list = make("ul");
      for (const [sender, receiver, , start, size] of live.slice(0, 200))
        list.append(make("li", { textContent: `${sender} → ${receiver}  ${boxText(start, size)}  ${bytes(volume(size) * plan.itemsize)}` }));
      side.append(list);
    } else {
      const sizes = tiles.holders.map(d => volume(tiles.size[d]));
      side.append(make("p", { textContent: `${tiles.holders.length} devices hold tiles of up to ${grouped(Math.max(...sizes))} elements (${bytes(Math.max(...sizes) * plan.itemsize)}).` }));
      side.append(make("p", { className: "hint", textContent: "Move the slider for the messages of each step; point at a tile to see who sends to it." }));
      if (plan.shape.length > 2) side.append(make("p", { className: "hint", textContent: `Dimensions ${plan.dims.join(" and ")} are drawn; the other dimensions lie behind each other.` }));
    }
  }
  function set(k) { slider.value = Math.max(0, Math.min(frames.length - 1, k)); draw(); }
  function take(k) { plan = data.plans[k]; frames = plan.placements.length ? framesOf(plan) : [{ text: plan.note, placement: 0, step: null, round: null }]; slider.max = frames.length - 1; set(0); }
  slider.addEventListener("input", draw);
  back.onclick = () => set(+slider.value - 1);
  on.onclick = () => set(+slider.value + 1);
  choice.onchange = () => take(+choice.value);
  take(0);
  return section;
}

// ---------------------------------------------------------------- timelines and memory, zoomed together

function timelineView(line) {
  const section = make("section"), end = Math.max(1e-12, ...line.blocks.map(b => b.start + b.seconds));
  const names = Object.keys(line.memory), hasMemory = names.length > 0;
  section.append(make("h2", { textContent: "Timeline" }),
    make("p", { className: "hint", textContent: "Wheel: zoom. Drag: move. Double click: all of it." }));
  const inside = { compute: 0, move: 0, step: 1, round: 2 }, fills = { compute: null, move: "#cbd2dc", step: "#8fb8de", round: "#f0b775" };
  const depths = [...new Set(line.blocks.map(b => inside[b.kind]))].sort();
  const ROW = 22 * depths.length + 6, LEFT = 170, MEMORY = hasMemory ? 150 : 0, AXIS = 20;
  const height = line.rows.length * ROW + AXIS + MEMORY + 8;
  const canvas = make("canvas", { id: "timeline" });
  canvas.style.height = height + "px";
  section.append(canvas);
  const mostHeld = names.reduce((most, n) => line.memory[n].reduce((top, s) => Math.max(top, s[1]), most), 1);
  const unitOf = most => 2 ** Math.max(0, Math.floor(Math.log2(most / 2))); // of the axis of bytes: two or three marks above 0
  const state = { from: 0, to: end, end };
  window.redistribTimeline = state;
  const colours = new Map();
  const fillOf = block => {
    if (fills[block.kind]) return fills[block.kind];
    if (!colours.has(block.name)) colours.set(block.name, `hsl(${colours.size * 47 % 360} 55% 75%)`);
    return colours.get(block.name);
  };
  const rows = line.rows.map(() => []);
  for (const block of line.blocks) rows[block.row].push(block);
  const place = block => [block.row * ROW + 3 + 22 * depths.indexOf(inside[block.kind]), 20];
  const xOf = seconds => LEFT + (seconds - state.from) / (state.to - state.from) * (canvas.clientWidth - LEFT);
  const at = x => state.from + (x - LEFT) / (canvas.clientWidth - LEFT) * (state.to - state.from);
  // A name, or as much of it as there is room for.
  const fitted = (g, name, room) => {
    if (g.measureText(name).width <= room) return name;
    let count = Math.min(name.length - 1, Math.ceil(room / 3));
    while (count > 0 && g.measureText(name.slice(0, count) + "…").width > room) count--;
    return count ? name.slice(0, count) + "…" : "";
  };
  function draw() {
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth;
    canvas.width = width * ratio; canvas.height = height * ratio;
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.clearRect(0, 0, width, height);
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    g.save();
    g.beginPath(); g.rect(LEFT, 0, width - LEFT, height); g.clip();
    for (const row of rows) {
      const last = {};
      for (const block of row) {
        const x = xOf(block.start), w = Math.max(.6, xOf(block.start + block.seconds) - x);
        if (x + w < LEFT || x > width || (w < 1 && Math.abs(x - last[block.kind]) < .6)) continue;
        last[block.kind] = x;
        const [y, h] = place(block);
        g.fillStyle = fillOf(block);
        g.fillRect(x, y, w, h);
        if (w > 3) { g.strokeStyle = "#0004"; g.strokeRect(x + .5, y + .5, w - 1, h - 1); }
        const seen = Math.min(x + w, width) - Math.max(x, LEFT);
        if (seen > 30) {
          g.fillStyle = "#111";
          g.fillText(fitted(g, block.name, seen - 5), Math.max(x, LEFT) + 4, y + h / 2);
        }
      }
    }
    if (hasMemory) {
      const top = line.rows.length * ROW + AXIS, most = mostHeld, unit = unitOf(most);
      for (let size = 0; size <= most; size += unit) {
        const y = top + MEMORY - size / most * (MEMORY - 14);
        g.fillStyle = "#dde1e8";
        g.fillRect(LEFT, y - 1, width - LEFT, 1);
      }
      names.forEach((name, k) => {
        g.strokeStyle = `hsl(${k * 67 % 360} 60% 45%)`;
        g.lineWidth = 1.5;
        g.beginPath();
        let y = null;
        for (const [when, size] of line.memory[name]) {
          const x = xOf(when), next = top + MEMORY - size / most * (MEMORY - 14);
          if (y === null) g.moveTo(x, next); else { g.lineTo(x, y); g.lineTo(x, next); }
          y = next;
        }
        g.stroke();
      });
      if (line.peak) {
        const x = xOf(line.peak[0]), y = top + MEMORY - line.peak[1] / most * (MEMORY - 14);
        g.fillStyle = "#c0392b"; g.beginPath(); g.arc(x, y, 4, 0, 7); g.fill();
        g.fillText(`peak ${bytes(line.peak[1])}`, Math.max(LEFT + 4, Math.min(x + 8, width - 130)), y - 8); // no line is above it
      }
    }
    g.fillStyle = "#445";
    const steps = Math.max(1, Math.min(6, Math.floor((width - LEFT) / 130)));
    for (let k = 0; k <= steps; k++) {
      const seconds = state.from + (state.to - state.from) * k / steps;
      const x = xOf(seconds);
      g.fillText(time(seconds), Math.min(x + 3, width - 66), line.rows.length * ROW + AXIS / 2);
      g.fillRect(x, line.rows.length * ROW, 1, 5);
    }
    g.restore();
    g.fillStyle = "#223";
    line.rows.forEach((name, k) => g.fillText(name, 4, k * ROW + ROW / 2, LEFT - 8));
    if (hasMemory) {
      const top = line.rows.length * ROW + AXIS, most = mostHeld, unit = unitOf(most);
      g.fillText("bytes held", 4, top + 12);
      g.textAlign = "right";
      for (let size = 0; size <= most; size += unit)
        g.fillText(bytes(size), LEFT - 8, Math.min(height - 8, top + MEMORY - size / most * (MEMORY - 14)));
      g.textAlign = "left";
    }
  }
  const clamp = () => {
    const span = Math.min(end, state.to - state.from);
    state.from = Math.max(0, Math.min(state.from, end - span));
    state.to = state.from + span;
  };
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    const middle = at(event.offsetX), factor = event.deltaY > 0 ? 1.25 : .8;
    state.from = middle - (middle - state.from) * factor;
    state.to = middle + (state.to - middle) * factor;
    clamp(); draw();
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", event => { held = event.offsetX; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("dblclick", () => { state.from = 0; state.to = end; draw(); });
  canvas.addEventListener("pointermove", event => {
    if (held !== null) {
      const by = at(held) - at(event.offsetX);
      held = event.offsetX;
      state.from += by; state.to += by;
      clamp(); draw();
      return;
    }
    const when = at(event.offsetX), row = Math.floor(event.offsetY / ROW);
    let found = null;
    if (event.offsetX >= LEFT && row < rows.length)
      for (const block of rows[row]) {
        const [y, h] = place(block);
        if (block.start <= when && when <= block.start + block.seconds && y <= event.offsetY && event.offsetY <= y + h) found = block;
      }
    if (found) { showTip(event, `${found.name}\n${time(found.start)} + ${time(found.seconds)}\n${found.note}`); return; }
    if (hasMemory && event.offsetY > line.rows.length * ROW + AXIS) {
      const lines = names.slice(0, 8).map(name => {
        const before = line.memory[name].filter(s => s[0] <= when);
        return `${name}: ${bytes(before.length ? before[before.length - 1][1] : 0)}`;
      });
      showTip(event, `${time(when)}\n${lines.join("\n")}`);
      return;
    }
    hideTip();
  });
  canvas.addEventListener("pointerleave", hideTip);
  addEventListener("resize", draw);
  new ResizeObserver(draw).observe(canvas);
  return section;
}

// ---------------------------------------------------------------- tables that sort, and draw only the rows in sight

const HEIGHT = 24, MOVED = "\u21c4 "; // before what moves

function tableView(table, number) {
  const section = make("section"), body = make("tbody"), scroll = make("div", { className: "scroll", id: number });
  let rows = table.rows.slice();
  const numeric = table.columns.map((_, k) => rows.some(row => Array.isArray(row[k])));
  const head = make("tr");
  table.columns.forEach((column, k) => {
    const cell = make("th", { textContent: column, className: numeric[k] ? "n" : "" });
    cell.onclick = () => {
      const order = cell.dataset.order === "down" ? "up" : numeric[k] && !cell.dataset.order ? "down" : cell.dataset.order === "up" ? "down" : "up";
      for (const other of head.children) delete other.dataset.order;
      cell.dataset.order = order;
      const sign = order === "up" ? 1 : -1, value = row => Array.isArray(row[k]) ? row[k][1] : row[k];
      rows = table.rows.slice().sort((a, b) => {
        const x = value(a), y = value(b);
        return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
      });
      scroll.scrollTop = 0;
      draw();
    };
    head.append(cell);
  });
  scroll.append(make("table", {}, make("thead", {}, head), body));
  const spacer = size => make("tr", {}, make("td", { colSpan: table.columns.length, style: `height:${size}px;padding:0;border:0` }));
  function draw() {
    const few = rows.length <= 300;
    const from = few ? 0 : Math.max(0, Math.floor(scroll.scrollTop / HEIGHT) - 10), to = few ? rows.length : Math.min(rows.length, from + 60);
    const shown = rows.slice(from, to).map(row => make("tr", { className: row.some(cell => String(cell).startsWith(MOVED)) ? "moved" : "" }, ...row.map((cell, k) => make("td", { textContent: Array.isArray(cell) ? cell[0] : cell, title: Array.isArray(cell) ? "" : cell, className: numeric[k] ? "n" : "" }))));
    body.replaceChildren(spacer(from * HEIGHT), ...shown, spacer((rows.length - to) * HEIGHT));
  }
  scroll.addEventListener("scroll", draw);
  section.append(make("h2", { textContent: `${table.title} (${grouped(rows.length)})` }), scroll);
  draw();
  return section;
}

data.summary.forEach((table, k) => { if (table.rows.length) app.append(tableView(table, `summary${k}`)); });
if (data.plans.length) app.append(planView());
if (data.timeline && data.timeline.blocks.length) app.append(timelineView(data.timeline));
data.tables.forEach((table, k) => { if (table.rows.length) app.append(tableView(table, `table${k}`)); });
document.body.dataset.ready = "yes";
