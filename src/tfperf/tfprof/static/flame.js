"use strict";

// A click on a box makes it as wide as the page; arrow keys go from box to box.

const LETTER = 6.9;
const flame = document.getElementById("flame");
// A picture that listens to focus events would itself be reached with Tab.
const main = flame.parentElement;
const showAll = document.getElementById("all");
const details = document.getElementById("details");

const boxes = [...flame.querySelectorAll(".box")].map((place, index) => ({
  index,
  place,
  level: Number(place.dataset.level),
  left: parseFloat(place.getAttribute("x")),
  width: parseFloat(place.getAttribute("width")),
  label: place.querySelector("text"),
  name: place.querySelector("text").textContent,
  above: null,
  inside: [],
}));
const boxOf = new Map(boxes.map((box) => [box.place, box]));

// Boxes come with the outer ones first.
const open = [];
for (const box of boxes) {
  box.above = open[box.level - 1] ?? null;
  box.above?.inside.push(box);
  open[box.level] = box;
}
let shown = boxes[0];

function fitLabel(box, pixels) {
  const letters = Math.floor((pixels - 8) / LETTER);
  const text = box.name.length <= letters ? box.name : letters < 3 ? "" : `${box.name.slice(0, letters - 1)}…`;
  if (box.label.textContent !== text) box.label.textContent = text;
}

function draw() {
  const pixels = flame.clientWidth;
  const around = new Set();
  for (let box = shown.above; box; box = box.above) around.add(box);
  const within = new Set([shown]);
  for (const box of boxes) {
    if (box.above && within.has(box.above)) within.add(box);
    const isThere = within.has(box) || around.has(box);
    box.place.classList.toggle("hidden", !isThere);
    box.place.classList.toggle("around", around.has(box));
    if (!isThere) continue;
    const left = around.has(box) ? 0 : ((box.left - shown.left) / shown.width) * 100;
    const width = around.has(box) ? 100 : (box.width / shown.width) * 100;
    box.place.setAttribute("x", `${left}%`);
    box.place.setAttribute("width", `${width}%`);
    fitLabel(box, (pixels * width) / 100);
  }
  showAll.hidden = shown === boxes[0];
}

function zoom(box) {
  shown = box;
  draw();
}

function describe(box) {
  details.textContent = box.place.querySelector("title").textContent.split("\n").join(" · ");
}

function focus(box) {
  if (!box || box.place.classList.contains("hidden")) return;
  flame.querySelector('[tabindex="0"]').setAttribute("tabindex", "-1");
  box.place.setAttribute("tabindex", "0");
  box.place.focus();
}

function beside(box, step) {
  const siblings = box.above?.inside ?? [box];
  return siblings[siblings.indexOf(box) + step];
}

const KEYS = {
  ArrowUp: (box) => focus(box.above),
  ArrowDown: (box) => focus(box.inside[0]),
  ArrowLeft: (box) => focus(beside(box, -1)),
  ArrowRight: (box) => focus(beside(box, 1)),
  Enter: zoom,
  " ": zoom,
};

const boxAt = (event) => boxOf.get(event.target.closest(".box"));
main.addEventListener("click", (event) => {
  const box = boxAt(event);
  if (box) zoom(box);
});
for (const kind of ["mouseover", "focusin"]) {
  main.addEventListener(kind, (event) => {
    const box = boxAt(event);
    if (box) describe(box);
  });
}
main.addEventListener("keydown", (event) => {
  const box = boxAt(event);
  if (!box || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key](box);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") zoom(boxes[0]);
});
showAll.addEventListener("click", () => zoom(boxes[0]));
new ResizeObserver(draw).observe(flame);
draw();
details.textContent = "Point at a box for its numbers, click it to zoom in. Arrow keys, Enter and Esc do the same.";
document.documentElement.dataset.state = "ready";
