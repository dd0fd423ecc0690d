// One step as swim lanes, drawn with the drawing layer of ECharts on one canvas: an image of the blocks, above it texts
// and marks. picture_data.js decodes and searches; here is what is seen and what keys and the pointer do. All texts are
// drawn or set as text, so none is ever markup.

const BLOCK = 14;
const ROW_STEP = 15;
const LANE_TITLE = 16;
const GROUP_TITLE = 24;
const RIBBON = 26;
const CURVE = 44;
const AXIS = 20;
const LETTER = 6.3;
const LABEL_FROM = 48;
const MOST_LABELS = 400;
const MOST_ARROWS = 24;
const LEAST_NS = 20;
const REMEMBER_AFTER_MS = 250;
const IDLE_COLOURS = {
  "waiting for input": "input", "tracing, compiling": "compilation", "copying": "to-device", "launching": "launch",
  "python between calls": "python", "other host compute": "host", "synchronizing": "line", "unknown": "line",
};
const BLOCK_COLOURS = {
  "input pipeline": "pipeline", "python": "python", "call": "call", "own work": "call", "waiting for others": "collectives",
};
const DARK_COLOURS = new Set(["device", "compilation", "python"]);
const PICTURE_KEYS = "w s a d: zoom and move. Arrows: from block to block. /: search. Esc: back. Ctrl and wheel: zoom. Click: details and links.";
const pictures = [];

function blockColour(kind) {
  const name = kind.toLowerCase();
  if (name.startsWith("idle: ")) return IDLE_COLOURS[name.slice(6)] ?? "line";
  return COLOURS[name] ?? BLOCK_COLOURS[name] ?? "call";
}

// The colour of text on a block.
function inkOn(name) {
  if (name === "host" && colour("host") === colour("device")) return "on-dark";
  return ["line", "call"].includes(name) ? "text" : DARK_COLOURS.has(name) ? "on-dark" : "on-block";
}

function nsText(ns) {
  return ns >= 1e5 || ns === 0 ? `${timeText(ns / 1e6)} ms` : `${numberText(ns / 1000, true)} µs`;
}

class StepPicture {
  constructor(place, data) {
    Object.assign(this, { place, data, from: 0, to: data.duration, selected: null, hovered: null, matches: null });
    this.isOpen = data.groups.map((group) => group.isOpen);
    this.blocks = document.createElement("canvas").getContext("2d");
    this.lines = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    this.tools();
    this.canvas = element("div", { className: "lanes", tabIndex: 0, role: "application" });
    this.canvas.setAttribute("aria-label", `Lanes of the step. ${PICTURE_KEYS}`);
    this.tip = element("div", { className: "tip", hidden: true });
    this.details = element("div", { className: "block-details" });
    this.details.setAttribute("aria-live", "polite");
    place.append(this.legend(), this.canvas, this.tip, this.details);
    this.layout();
    this.start();
    this.listen();
    this.describe();
    new ResizeObserver(() => ![0, this.width].includes(this.canvas.clientWidth) && this.resize()).observe(this.canvas);
  }

  tools() {
    const tools = element("div", { className: "tools picture-tools" });
    const button = (text, title, act) => {
      const made = element("button", { type: "button", textContent: text, title });
      made.addEventListener("click", act);
      tools.append(made);
    };
    button("+", "Zoom in (w)", () => this.zoom(0.5));
    button("−", "Zoom out (s)", () => this.zoom(2));
    button("Whole step", "Show the whole step (Esc)", () => this.show(0, this.data.duration));
    const label = element("label", { textContent: "Search " });
    this.search = element("input", { type: "search" });
    this.found = element("span", { className: "found" });
    this.search.addEventListener("input", () => this.find(this.search.value));
    this.search.addEventListener("keydown", (event) => event.key === "Escape" && this.escape());
    label.append(this.search);
    tools.append(label, this.found);
    this.place.append(tools);
  }

  // The categories of the step with their times, then other kinds of blocks.
  legend() {
    const { ribbons, names } = this.data;
    const times = new Map();
    ribbons.forEach((ribbon) => ribbon.start.forEach((start, at) => {
      const title = ribbon.titles[ribbon.category[at]];
      times.set(title, (times.get(title) ?? 0) + (ribbon.end[at] - start) / ribbons.length);
    }));
    const ordered = [...times].sort((a, b) => b[1] - a[1]);
    const kinds = [...new Set(names.map(([, kind]) => kind))].filter((kind) => kind && !times.has(kind));
    const item = (title, text = "") => {
      const swatch = element("span", { className: title.startsWith("Idle: ") ? "swatch faint" : "swatch" });
      swatch.style.background = `var(--${blockColour(title)})`;
      return element("li", {}, [swatch, ` ${title} `, element("b", { textContent: text })]);
    };
    const shares = ordered.map(([title, ns]) => item(title, `${timeText(ns / 1e6)} ms, ${percentText((100 * ns) / Math.max(this.data.duration, 1))}%`));
    return element("ul", { className: "picture-legend" }, [...shares, ...kinds.map((kind) => item(kind))]);
  }

  // Where everything stands, from top to bottom; rows of folded groups have no place.
  layout() {
    const { ribbons, groups, memory } = this.data;
    this.rowTop = new Float32Array(this.data.rowCount).fill(-1);
    this.titles = [];
    this.heads = [];
    let y = AXIS;
    this.ribbonTops = ribbons.map(({ title }) => {
      this.titles.push({ y, text: title });
      y += LANE_TITLE + RIBBON;
      return y - RIBBON;
    });
    let row = 0;
    groups.forEach((group, number) => {
      y += 6;
      this.heads.push({ y, number });
      y += GROUP_TITLE;
      for (const lane of group.lanes) {
        if (this.isOpen[number]) {
          this.titles.push({ y, text: `${lane.title}  ${percentText(lane.busy)}%` });
          y += LANE_TITLE;
          for (let at = 0; at < lane.rows; at += 1) this.rowTop[row + at] = y + at * ROW_STEP;
          y += lane.rows * ROW_STEP + 2;
        }
        row += lane.rows;
      }
    });
    this.curveTops = memory.map(({ title, most }) => {
      y += 6;
      this.titles.push({ y, text: `Memory in use, ${title}: at most ${bytesText(most)}` });
      y += LANE_TITLE + CURVE;
      return y - CURVE;
    });
    this.height = Math.ceil(y + 4);
    this.canvas.style.height = `${this.height}px`;
  }

  // Paper has finer pixels than most screens.
  get wantedDensity() {
    return Number.isFinite(this.size?.width) ? Math.max(devicePixelRatio, 2) : devicePixelRatio;
  }

  start() {
    this.zr?.dispose();
    this.labels = [];
    this.marks = [];
    this.density = this.wantedDensity;
    this.zr = echarts.zrender.init(this.canvas, { renderer: "canvas", devicePixelRatio: this.density });
    this.image = new echarts.graphic.Image({ silent: true, style: { image: this.blocks.canvas, x: 0, y: 0 } });
    this.zr.add(this.image);
  }

  // A size holds until the next one: paper's must not give way to that of the window while a page is printed.
  resize(size = undefined) {
    this.size = size ?? this.size;
    if (this.density !== this.wantedDensity) this.start();
    this.zr.resize({ width: this.size?.width ?? "auto", height: this.height });
    this.draw();
  }

  get width() {
    return this.zr.getWidth();
  }

  x(ns) {
    return ((ns - this.from) / (this.to - this.from)) * this.width;
  }

  // --- drawing ---

  draw() {
    this.clear();
    this.texts = 0;
    const level = levelFor(this.data, (this.to - this.from) / Math.max(this.width, 1));
    this.level = level;
    this.drawAxis();
    this.drawRibbons();
    this.drawHeads();
    this.drawRows(level);
    for (const { y, text } of this.titles) this.text(0, y + LANE_TITLE / 2, text, "muted", this.width);
    this.drawCurves();
    this.drawMarks();
    for (let at = this.texts; at < this.labels.length; at += 1) this.labels[at].attr({ ignore: true });
    this.zr.flush();
  }

  clear() {
    const { width, height, density } = this;
    Object.assign(this.blocks.canvas, { width: Math.round(width * density), height: Math.round(height * density) });
    this.blocks.scale(density, density);
    this.blocks.imageSmoothingEnabled = false;
    this.image.attr({ style: { width, height } });
  }

  // Left and right are whole pixels, so that neighbours leave no seam.
  box(colourName, x, y, width, height, opacity = 1) {
    const [left, right] = [x, x + width].map((edge) => Math.round(edge * this.density) / this.density);
    this.blocks.fillStyle = this.colours(colourName);
    this.blocks.globalAlpha = opacity;
    this.blocks.fillRect(left, y, right - left, height);
  }

  text(x, y, text, colourName, room) {
    const letters = Math.floor(room / LETTER);
    if (letters < 3) return;
    let label = this.labels[this.texts];
    if (!label) {
      label = new echarts.graphic.Text({ silent: true, z: 3 });
      this.zr.add(label);
      this.labels.push(label);
    }
    const fill = this.colours(colourName);
    const style = { text: short(text, letters), fill, font: this.font, verticalAlign: "middle", width: room, overflow: "truncate", ellipsis: "" };
    label.attr({ ignore: false, x, y, style });
    this.texts += 1;
  }

  colours(name) {
    this.palette ??= new Map();
    if (!this.palette.has(name)) this.palette.set(name, colour(name));
    return this.palette.get(name);
  }

  ink(name) {
    this.inks ??= new Map();
    if (!this.inks.has(name)) this.inks.set(name, inkOn(name));
    return this.inks.get(name);
  }

  get font() {
    this.fontText ??= `11px ${getComputedStyle(document.body).fontFamily}`;
    return this.fontText;
  }

  drawAxis() {
    const interval = roundInterval(this.to - this.from) ?? 1;
    const digits = Math.max(0, -Math.floor(Math.log10(interval / 1e6) + 1e-9));
    let free = 0;
    for (let ns = Math.ceil(this.from / interval) * interval; ns <= this.to; ns += interval) {
      const left = this.x(ns);
      const mark = `${fixed(ns / 1e6, digits)} ms`;
      const room = (mark.length + 1) * LETTER;
      this.box("line", left, AXIS - 4, 1, this.height - AXIS + 4);
      if (left < free || left + room > this.width) continue;
      this.text(left + 2, 8, mark, "muted", room);
      free = left + room + 8;
    }
  }

  drawRibbons() {
    this.data.ribbons.forEach((ribbon, number) => {
      const y = this.ribbonTops[number];
      for (let at = 0; at < ribbon.start.length; at += 1) {
        if (ribbon.end[at] <= this.from || ribbon.start[at] >= this.to) continue;
        const left = Math.max(this.x(ribbon.start[at]), 0);
        const width = Math.min(this.x(ribbon.end[at]), this.width) - left;
        const title = ribbon.titles[ribbon.category[at]];
        const name = blockColour(title);
        this.box(name, left, y, width, RIBBON - 4);
        if (width > LABEL_FROM) this.text(left + 3, y + RIBBON / 2 - 2, title, this.ink(name), width - 6);
      }
    });
  }

  // The head of a group: a sign, its title, and how busy its lanes are.
  drawHeads() {
    for (const { y, number } of this.heads) {
      const group = this.data.groups[number];
      this.box("raised", 0, y, this.width, GROUP_TITLE - 4);
      const slot = this.data.duration / group.load.length;
      for (let at = 0; at < group.load.length; at += 1) {
        const left = this.x(at * slot);
        const right = this.x((at + 1) * slot);
        if (!group.load[at] || right < 0 || left > this.width) continue;
        const height = ((GROUP_TITLE - 6) * Math.min(group.load[at], 100)) / 100;
        this.box("accent", left, y + GROUP_TITLE - 5 - height, right - left, height, 0.35);
      }
      const count = group.lanes.length + group.omitted;
      const lanes = `${count} ${count === 1 ? "lane" : "lanes"}`;
      this.text(4, y + GROUP_TITLE / 2 - 2, `${this.isOpen[number] ? "▾" : "▸"} ${group.title} (${lanes})`, "text", this.width);
    }
  }

  // A row of blocks is a line of pixels, then stretched to its height: 20,000 blocks take a few milliseconds.
  drawRows(level) {
    const { width } = this.blocks.canvas;
    const { matches } = this;
    const { kinds, isIdle } = this.data;
    const rows = [...this.rowTop.keys()].filter((row) => this.rowTop[row] >= 0);
    if (!rows.length || !width) return;
    const image = new ImageData(width, rows.length);
    const pixels = new Uint32Array(image.data.buffer);
    const opacity = kinds.map((_, name) => (matches && !matches.has(name) ? 0.2 : isIdle[name] ? 0.55 : 1));
    const bits = new Map([...new Set(kinds)].map((kind) => [kind, this.bits(kind)]));
    const colours = kinds.map((kind, name) => (Math.round(255 * opacity[name]) << 24) | bits.get(kind));
    for (const [line, row] of rows.entries()) {
      let free = 0;
      for (let at = firstFrom(level, row, this.from); at < level.ends[row] && level.start[at] < this.to; at += 1) {
        const name = level.name[at];
        const left = Math.max(this.x(level.start[at]), 0);
        const right = Math.min(this.x(level.start[at] + level.duration[at]), this.width);
        if (right < 0) continue;
        const first = line * width + Math.min(Math.round(left * this.density), width - 1);
        pixels.fill(colours[name], first, Math.max(line * width + Math.round(right * this.density), first + 1));
        // Work of a stream may overlap; its labels may not.
        if (right - left > LABEL_FROM && left >= free && this.texts < MOST_LABELS) {
          const ink = opacity[name] < 1 ? "text" : this.ink(kinds[name]);
          this.text(left + 3, this.rowTop[row] + BLOCK / 2, blockLabel(this.data, level, at), ink, right - left - 6);
          free = right;
        }
      }
    }
    Object.assign(this.lines.canvas, { width, height: rows.length });
    this.lines.putImageData(image, 0, 0);
    this.blocks.globalAlpha = 1;
    rows.forEach((row, line) => this.blocks.drawImage(this.lines.canvas, 0, line, width, 1, 0, this.rowTop[row], this.width, BLOCK));
  }

  // The lower 24 bits of a pixel as a canvas keeps them, on machines whose first byte is the lowest.
  bits(name) {
    const [red, green, blue] = this.colours(name).match(/\d+/g).map(Number);
    return (blue << 16) | (green << 8) | red;
  }

  drawCurves() {
    this.data.memory.forEach((curve, number) => {
      const bottom = this.curveTops[number] + CURVE - 4;
      for (let at = 0; at < curve.times.length; at += 1) {
        const left = Math.max(this.x(curve.times[at]), 0);
        const right = Math.min(this.x(curve.times[at + 1] ?? this.data.duration), this.width);
        const height = curve.most ? ((CURVE - 6) * curve.values[at]) / curve.most : 0;
        if (right > left) this.box("accent", left, bottom - height, right - left, height, 0.4);
      }
    });
  }

  // The selected block, and its links.
  drawMarks() {
    for (const mark of this.marks) this.zr.remove(mark);
    this.marks = [];
    const add = (mark) => {
      this.marks.push(mark);
      this.zr.add(mark);
    };
    const block = this.selected;
    if (!block || this.rowTop[block.row] < 0) return;
    const left = Math.max(this.x(block.start), 0);
    const width = Math.max(Math.min(this.x(block.start + block.duration), this.width) - left, 2);
    const line = { fill: "none", stroke: this.colours("text"), lineWidth: 2 };
    add(new echarts.graphic.Rect({ silent: true, z: 5, shape: { x: left, y: this.rowTop[block.row], width, height: BLOCK }, style: line }));
    for (const { from, to } of linksOf(this.data, block).slice(0, MOST_ARROWS)) {
      if (this.rowTop[from.row] < 0 || this.rowTop[to.row] < 0) continue;
      const [x1, x2] = [this.x(from.ns), this.x(to.ns)];
      const [y1, y2] = [this.rowTop[from.row] + BLOCK / 2, this.rowTop[to.row] + BLOCK / 2];
      const shape = { x1, y1, x2, y2, cpx1: (x1 + x2) / 2, cpy1: y1, cpx2: (x1 + x2) / 2, cpy2: y2 };
      add(new echarts.graphic.BezierCurve({ silent: true, z: 4, shape, style: { stroke: this.colours("link"), lineWidth: 1.5 } }));
      add(new echarts.graphic.Circle({ silent: true, z: 4, shape: { cx: x2, cy: y2, r: 3 }, style: { fill: this.colours("link") } }));
    }
  }

  // --- moving ---

  show(from, to) {
    const span = Math.min(Math.max(to - from, LEAST_NS), this.data.duration);
    this.from = Math.min(Math.max(from, 0), this.data.duration - span);
    this.to = this.from + span;
    this.draw();
    clearTimeout(this.remembering);
    this.remembering = setTimeout(() => this.rememberZoom(), REMEMBER_AFTER_MS);
  }

  get isWhole() {
    return this.to - this.from >= this.data.duration;
  }

  rememberZoom() {
    const { id } = this.place;
    if (!this.isWhole) remember({ zoom: `${id}:${Math.round(this.from)}-${Math.round(this.to)}` });
    else if (view.zoom.startsWith(`${id}:`)) remember({ zoom: "" });
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  move(share) {
    const by = share * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  }

  reveal(block) {
    const group = this.data.groupOfRow[block.row];
    if (!this.isOpen[group]) this.fold(group);
    const margin = Math.max(block.duration, LEAST_NS) * 0.5;
    this.select(block);
    if (block.start < this.from || block.start + block.duration > this.to) {
      this.show(block.start - margin, block.start + block.duration + margin);
    }
  }

  fold(group) {
    this.isOpen[group] = !this.isOpen[group];
    this.layout();
    this.resize();
  }

  escape() {
    if (this.search.value) {
      this.search.value = "";
      this.find("");
    } else if (this.selected) {
      this.select(null);
    } else {
      this.show(0, this.data.duration);
    }
    this.canvas.focus({ preventScroll: true });
  }

  find(text) {
    this.matches = text ? matchingNames(this.data, text) : null;
    this.found.textContent = text ? countText(this.data, this.matches) : "";
    this.draw();
  }

  select(block) {
    this.selected = block;
    this.describe();
    this.draw();
  }

  // --- what is under the pointer ---

  at(x, y) {
    const ns = this.from + (x / this.width) * (this.to - this.from);
    const ribbon = this.ribbonTops.findIndex((top) => y >= top && y < top + RIBBON - 4);
    if (ribbon >= 0) return { ribbon: ribbonAt(this.data.ribbons[ribbon], ns) };
    const head = this.heads.find((each) => y >= each.y && y < each.y + GROUP_TITLE);
    if (head) return { head };
    const row = this.rowTop.findIndex((top) => top >= 0 && y >= top && y < top + ROW_STEP);
    if (row < 0) return {};
    const pixel = (this.to - this.from) / this.width;
    return { block: blockAt(this.data, this.level, row, ns, 2 * pixel) };
  }

  listen() {
    let dragged = null;
    const place = (event) => [event.offsetX, event.offsetY];
    this.canvas.addEventListener("pointerdown", (event) => {
      dragged = { x: event.offsetX, from: this.from, to: this.to, isDrag: false };
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (dragged && event.buttons) {
        const by = ((dragged.x - event.offsetX) / this.width) * (dragged.to - dragged.from);
        if (Math.abs(dragged.x - event.offsetX) > 4) dragged.isDrag = true;
        if (dragged.isDrag) this.show(dragged.from + by, dragged.to + by);
      }
      this.hover(...place(event));
    });
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.canvas.addEventListener("click", (event) => {
      if (!dragged?.isDrag) this.click(...place(event));
      dragged = null;
    });
    this.canvas.addEventListener("dblclick", (event) => {
      const { block } = this.at(...place(event));
      if (block) this.show(block.start - block.duration * 0.1, block.start + block.duration * 1.1);
    });
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 0.8 : 1.25, this.from + (event.offsetX / this.width) * (this.to - this.from));
    }, { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  hover(x, y) {
    const { ribbon, block } = this.at(x, y);
    const lines = block ? blockLines(this.data, block) : ribbon ? ribbonLines(ribbon) : [];
    this.tip.hidden = !lines.length;
    this.tip.textContent = lines.join("\n");
    this.tip.style.left = `${Math.max(Math.min(x + 12, this.width - this.tip.offsetWidth - 4), 0)}px`;
    this.tip.style.top = `${this.canvas.offsetTop + y + 18}px`;
  }

  click(x, y) {
    const { head, block } = this.at(x, y);
    if (head) this.fold(head.number);
    else this.select(block ?? null);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const beside = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const keys = {
      w: () => this.zoom(0.7), s: () => this.zoom(1.4), a: () => this.move(-0.25), d: () => this.move(0.25),
      "/": () => this.search.focus(), Escape: () => this.escape(),
    };
    if (beside) {
      const next = neighbour(this.data, this.level, this.selected, ...beside, (row) => this.rowTop[row] >= 0);
      if (next) this.reveal(next);
    } else if (keys[event.key]) {
      keys[event.key]();
    } else {
      return;
    }
    event.preventDefault();
  }

  // What is known of the selected block, and where it leads.
  describe() {
    const block = this.selected;
    this.details.replaceChildren();
    if (!block) {
      this.details.textContent = PICTURE_KEYS;
      return;
    }
    this.details.append(element("p", { textContent: blockLines(this.data, block).join("\n") }));
    const button = (text, act) => {
      const made = element("button", { type: "button", textContent: short(text, 90) });
      made.addEventListener("click", act);
      this.details.append(made, " ");
    };
    const op = opOf(this.data, block);
    if (op) button(`Show ${op} in the table of ops`, () => showInTable("section-ops", op));
    for (const { kind, isOutgoing, other } of linksOf(this.data, block).slice(0, MOST_ARROWS)) {
      const target = blockAt(this.data, finestLevel(this.data), other.row, other.ns, 0);
      if (!target) continue;
      const name = this.data.names[target.name][0];
      button(isOutgoing ? `${kind} ${name}` : `from ${name}, which ${kind} it`, () => this.reveal(target));
    }
  }
}

// Pictures are decoded before they are wanted, since paper does not wait.
const decoded = new Map();

async function preparePictures() {
  for (const [number, data] of allCharts().entries()) {
    await new Promise((done) => (window.requestIdleCallback ?? setTimeout)(done));
    if (data.kind === "picture" && !decoded.has(`chart-${number}`)) await decodedPicture(data, `chart-${number}`);
  }
}

async function decodedPicture(data, id) {
  const made = decodePicture(await unpacked(data.packed));
  decoded.set(id, made);
  return made;
}

function drawPicture(data, place) {
  if (decoded.has(place.id)) {
    addPicture(decoded.get(place.id), place);
    return;
  }
  place.append(element("p", { className: "waiting", textContent: "…" }));
  decodedPicture(data, place.id).then((made) => {
    place.querySelector(".waiting").remove();
    addPicture(made, place);
  });
}

function addPicture(data, place) {
  const picture = new StepPicture(place, data);
  pictures.push(picture);
  place.dataset.state = "drawn";
  picture.draw();
  showZoom();
  foldDetails(place.closest("details.section"));
}

function redrawPictures(size = undefined) {
  for (const picture of pictures) {
    picture.palette = undefined;
    picture.inks = undefined;
    picture.resize(size);
  }
}

// Show of each picture what the address says: a stretch of one, the others whole.
function showZoom() {
  const [, id, from, to] = /^(.+):(\d+)-(\d+)$/.exec(view.zoom) ?? [];
  for (const picture of pictures) {
    if (picture.place.id === id) picture.show(Number(from), Number(to));
    else if (!id && !picture.isWhole) picture.show(0, picture.data.duration);
  }
}

// A link from a cause leads to the stretch of the step where it costs most.
function showPlace(link) {
  const { picture: id, from, to } = link.dataset;
  const margin = (Number(to) - Number(from)) * 0.1;
  const start = Math.max(Math.round(Number(from) - margin), 0);
  remember({ ids: [id], zoom: `${id}:${start}-${Math.round(Number(to) + margin)}` }, true);
  land(document.getElementById(id));
  showZoom();
}
