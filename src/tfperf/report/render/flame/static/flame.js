// Flame graphs: a click on a box makes it as wide as the graph, a search marks boxes; keys do the same.

const FLAME_LETTER = 6.9;
const FLAME_HINT = "Point at a box for its numbers, click it to zoom in. Arrow keys, Enter, / and Esc do the same.";

// One graph: its boxes, the one that is shown as wide as the graph, and the tools above it.
class FlameGraph {
  constructor(picture) {
    this.picture = picture;
    this.boxes = [...picture.querySelectorAll(".box")].map((place, index) => this.readBox(place, index));
    this.boxOf = new Map(this.boxes.map((box) => [box.place, box]));
    // Boxes come with the outer ones first.
    const open = [];
    for (const box of this.boxes) {
      box.above = open[box.level - 1] ?? null;
      box.above?.inside.push(box);
      open[box.level] = box;
    }
    this.shown = this.boxes[0];
    this.addTools();
    this.listen();
    new ResizeObserver(() => this.draw()).observe(picture);
    this.draw();
  }

  readBox(place, index) {
    const label = place.querySelector("text");
    const title = place.querySelector("title").textContent;
    return {
      index, place, label, title, name: label.textContent, whole: title.split("\n")[0].toLowerCase(),
      level: Number(place.dataset.level), left: parseFloat(place.getAttribute("x")),
      width: parseFloat(place.getAttribute("width")), above: null, inside: [],
    };
  }

  addTools() {
    const make = (name, className, attributes = {}) => {
      const made = Object.assign(document.createElement(name), { className, ...attributes });
      this.tools.append(made);
      return made;
    };
    this.tools = Object.assign(document.createElement("div"), { className: "flame-tools" });
    this.search = make("input", "flame-search", { type: "search", placeholder: "Search names" });
    this.search.setAttribute("aria-label", `Search names in ${this.picture.getAttribute("aria-label")}`);
    this.found = make("output", "flame-found");
    this.showAll = make("button", "flame-all", { type: "button", textContent: "Show all", hidden: true });
    this.details = make("output", "flame-details", { textContent: FLAME_HINT });
    this.picture.before(this.tools);
  }

  fitLabel(box, pixels) {
    const letters = Math.floor((pixels - 8) / FLAME_LETTER);
    const text = box.name.length <= letters ? box.name : letters < 3 ? "" : `${box.name.slice(0, letters - 1)}…`;
    if (box.label.textContent !== text) box.label.textContent = text;
  }

  draw() {
    const pixels = this.picture.clientWidth || this.picture.getBoundingClientRect().width;
    // In a folded section there is no width; it is drawn when it has one.
    if (!pixels) return;
    const around = new Set();
    for (let box = this.shown.above; box; box = box.above) around.add(box);
    const within = new Set([this.shown]);
    for (const box of this.boxes) {
      if (box.above && within.has(box.above)) within.add(box);
      const isThere = within.has(box) || around.has(box);
      box.place.classList.toggle("hidden", !isThere);
      box.place.classList.toggle("around", around.has(box));
      if (!isThere) continue;
      const left = around.has(box) ? 0 : ((box.left - this.shown.left) / this.shown.width) * 100;
      const width = around.has(box) ? 100 : (box.width / this.shown.width) * 100;
      box.place.setAttribute("x", `${left}%`);
      box.place.setAttribute("width", `${width}%`);
      this.fitLabel(box, (pixels * width) / 100);
    }
    this.showAll.hidden = this.shown === this.boxes[0];
  }

  zoom(box) {
    this.shown = box;
    this.draw();
  }

  describe(box) {
    this.details.textContent = box.title.split("\n").join(" · ");
  }

  // Marks the boxes whose name has the text. Their share counts a box inside another one once.
  mark(text) {
    const wanted = text.trim().toLowerCase();
    this.picture.classList.toggle("searching", wanted !== "");
    let count = 0;
    let share = 0;
    const counted = new Set();
    for (const box of this.boxes) {
      const isFound = wanted !== "" && box.whole.includes(wanted);
      box.place.classList.toggle("found", isFound);
      count += isFound;
      if (box.above && counted.has(box.above)) counted.add(box);
      else if (isFound) {
        share += box.width;
        counted.add(box);
      }
    }
    const noun = count === 1 ? "box" : "boxes";
    this.found.textContent = wanted ? `${count.toLocaleString("en-US")} ${noun}, ${this.shareText(share)} of all` : "";
  }

  shareText(share) {
    const text = share.toFixed(1);
    if (text === "0.0" && share > 0) return "<0.1%";
    return text === "100.0" && share < 100 - 1e-6 ? ">99.9%" : `${text}%`;
  }

  focus(box) {
    if (!box || box.place.classList.contains("hidden")) return;
    this.picture.querySelector('[tabindex="0"]').setAttribute("tabindex", "-1");
    box.place.setAttribute("tabindex", "0");
    box.place.focus();
  }

  beside(box, step) {
    const siblings = box.above?.inside ?? [box];
    return siblings[siblings.indexOf(box) + step];
  }

  press(key, box) {
    if (key === "ArrowUp") this.focus(box.above);
    else if (key === "ArrowDown") this.focus(box.inside[0]);
    else if (key === "ArrowLeft") this.focus(this.beside(box, -1));
    else if (key === "ArrowRight") this.focus(this.beside(box, 1));
    else if (key === "Enter" || key === " ") this.zoom(box);
    else return false;
    return true;
  }

  reset() {
    this.search.value = "";
    this.mark("");
    this.zoom(this.boxes[0]);
  }

  listen() {
    // A picture that listens to focus events would itself be reached with Tab.
    const outside = this.picture.parentElement;
    const boxAt = (event) => this.boxOf.get(event.target.closest(".box"));
    outside.addEventListener("click", (event) => {
      const box = boxAt(event);
      if (box) this.zoom(box);
    });
    for (const kind of ["mouseover", "focusin"]) {
      outside.addEventListener(kind, (event) => {
        const box = boxAt(event);
        if (box) this.describe(box);
      });
    }
    outside.addEventListener("keydown", (event) => {
      const box = boxAt(event);
      if (box && this.press(event.key, box)) event.preventDefault();
    });
    this.search.addEventListener("input", () => this.mark(this.search.value));
    this.showAll.addEventListener("click", () => this.zoom(this.boxes[0]));
  }
}

function isInWindow({ width, top, bottom }) {
  return width > 0 && bottom > 0 && top < innerHeight;
}

// The graph in which somebody is, or else the first that can be seen.
function currentFlame(graphs) {
  const isIn = (graph) => graph.picture.parentElement.contains(document.activeElement);
  return graphs.find(isIn) ?? graphs.find((graph) => isInWindow(graph.picture.getBoundingClientRect()));
}

function openFlames() {
  const graphs = [...document.querySelectorAll(".flame")].filter((picture) => picture.querySelector(".box"))
    .map((picture) => new FlameGraph(picture));
  if (!graphs.length) return;
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented) return;
    const isTyping = ["INPUT", "TEXTAREA", "SELECT"].includes(document.activeElement?.tagName);
    if (event.key === "Escape") graphs.forEach((graph) => graph.reset());
    else if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
      const graph = currentFlame(graphs);
      if (!graph) return;
      event.preventDefault();
      graph.search.focus();
    }
  });
}
