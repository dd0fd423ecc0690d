// What happens when the page is opened: tables and charts, the theme, the current section, printing.

const PAPER_WIDTH = 700;

function themeButton() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const button = element("button", { type: "button" });
  const showName = () => (button.textContent = isDark() ? "Light theme" : "Dark theme");
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    showName();
    redrawCharts();
  });
  dark.addEventListener("change", () => {
    showName();
    redrawCharts();
  });
  showName();
  document.querySelector(".choices").append(button);
}

// Mark the link of the section that is at the top of the window.
function followSections() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) markCurrent(links, target.querySelector(".inside").id);
    }
  }, { rootMargin: "-12% 0px -80% 0px" });
  document.querySelectorAll("main > section").forEach((section) => watcher.observe(section));
}

function markCurrent(links, id) {
  links.forEach((link, section) => (section === id ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  const list = document.querySelector("nav ol");
  const link = links.get(id);
  // A bar that is wider than the window follows; the page itself stays where it is.
  if (link && list.scrollWidth > list.clientWidth) list.scrollTo({ left: link.offsetLeft - list.offsetLeft - 40 });
}

// --- folding ---

function allSections() {
  return [...document.querySelectorAll("details.section")];
}

function idOf(section) {
  return section.querySelector(".inside").id;
}

// --- the address: `#section-steps&step=12&range=0-40&zoom=chart-5:1200-3400` ---
// `range` is the part of the chart of steps that is shown, in percent; `zoom` that of a picture, in nanoseconds.

const view = { ids: [], step: "", range: "", zoom: "" };

function readAddress() {
  let parts;
  try {
    parts = location.hash.slice(1).split("&").map(decodeURIComponent);
  } catch {
    parts = [""];
  }
  const [ids, ...rest] = parts;
  const named = Object.fromEntries(rest.map((part) => part.split("=", 2)));
  Object.assign(view, { ids: ids.split(",").filter(Boolean), step: named.step ?? "", range: named.range ?? "", zoom: named.zoom ?? "" });
}

// Put a change into the address, so that a copied link shows the same; `isNew` makes it a place that Back returns to.
function remember(changes, isNew = false) {
  Object.assign(view, changes);
  const more = ["step", "range", "zoom"].filter((key) => view[key]).map((key) => `&${key}=${encodeURIComponent(view[key])}`);
  const hash = view.ids.join(",") + more.join("");
  // Where a page is shown inside another one (a notebook), its address cannot be changed.
  try {
    if (hash === location.hash.slice(1)) return;
    history[isNew ? "pushState" : "replaceState"]({}, "", hash ? `#${hash}` : location.pathname + location.search);
  } catch {
    return;
  }
}

// The address names the sections that somebody unfolded, the last one first.
function rememberUnfolded(last) {
  const open = allSections().filter((section) => section.open && section.dataset.unfolded === "true");
  const ids = [last, ...open].filter((section) => section?.open).map(idOf);
  remember({ ids: [...new Set(ids)] });
}

function showView() {
  const linked = allSections().filter((section) => view.ids.includes(idOf(section)));
  linked.forEach(unfold);
  showStep();
  showZoom();
}

// Open all that is folded around a place.
function reveal(place) {
  const section = place.closest("details.section");
  if (section) unfold(section);
  for (let folded = place.closest("details:not([open])"); folded; folded = folded.closest("details:not([open])")) folded.open = true;
}

// Scroll to a place and outline it. It stays there while charts above are drawn, until the reader moves.
function land(place) {
  reveal(place);
  document.querySelectorAll(".is-target").forEach((other) => other.classList.remove("is-target"));
  (place.matches(".inside") ? place.closest("section") : place).classList.add("is-target");
  place.scrollIntoView();
  const watcher = new ResizeObserver(() => place.scrollIntoView());
  watcher.observe(document.querySelector("main"));
  const stop = () => watcher.disconnect();
  for (const kind of ["wheel", "touchstart", "keydown", "pointerdown"]) addEventListener(kind, stop, { once: true, passive: true });
  setTimeout(stop, 1500);
}

function landOnView() {
  const place = document.getElementById(view.ids[0] ?? "");
  if (place?.closest("main > section")) land(place);
}

function unfold(section) {
  section.open = true;
  section.dataset.unfolded = "true";
}

function followLinks() {
  for (const section of allSections()) {
    section.addEventListener("toggle", () => {
      if (!section.open) return;
      drawChartsIn(section);
      foldDetails(section);
    });
    section.querySelector("summary").addEventListener("click", () => {
      // The click is what folds or unfolds it, after this.
      setTimeout(() => {
        section.dataset.unfolded = String(section.open);
        rememberUnfolded(section);
      });
    });
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("main a[href^='#'], nav a[href^='#']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const place = document.getElementById(link.hash.slice(1));
    if (!place) return;
    event.preventDefault();
    if (link.classList.contains("place")) {
      showPlace(link);
      return;
    }
    remember({ ids: [place.id] }, true);
    land(place);
  });
  addEventListener("popstate", (event) => {
    readAddress();
    showView();
    // To where a reader has been, the browser scrolls back by itself.
    if (event.state === null) landOnView();
  });
}

// --- long sections ---

const MOST_SCREENS = 2;

// Of a section of more than two screens, fold the charts and tables that end below them; each keeps its title.
function foldDetails(section) {
  const inside = section.querySelector(".inside");
  const top = inside.getBoundingClientRect().top;
  const limit = MOST_SCREENS * innerHeight;
  if (!section.open || section.closest("section") === document.querySelector("main > section") || inside.offsetHeight <= limit) return;
  const parts = [...inside.querySelectorAll(":scope > figure, :scope > .table")];
  const bottoms = parts.map((part) => part.getBoundingClientRect().bottom - top);
  parts.forEach((part, number) => {
    // A part that is already unfolded by a link stays.
    if (!number || bottoms[number] <= limit || part.matches(".is-target, :has(.is-target)")) return;
    const title = part.querySelector("h3, figcaption").textContent;
    const { rows } = part.dataset;
    const more = element("details", { className: "more" }, [element("summary", { textContent: rows ? `${title}: ${rowsText(Number(rows))}` : title })]);
    part.before(more);
    more.append(part);
  });
}

function foldButton() {
  const button = element("button", { type: "button" });
  const isAllOpen = () => allSections().every((section) => section.open);
  const showName = () => (button.textContent = isAllOpen() ? "Fold all" : "Unfold all");
  button.addEventListener("click", () => {
    const open = !isAllOpen();
    allSections().forEach((section) => (section.open = open));
    showName();
  });
  allSections().forEach((section) => section.addEventListener("toggle", showName));
  showName();
  document.querySelector(".choices").append(button);
}

// Paper is light and narrower than a window, and nothing on it is folded.
function followPrinting() {
  let theme;
  let folded = [];
  addEventListener("beforeprint", () => {
    theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    folded = [...document.querySelectorAll("details:is(.section, .more, .alternatives):not([open])")];
    folded.forEach((details) => {
      details.open = true;
      drawChartsIn(details);
    });
    redrawCharts({ width: PAPER_WIDTH });
  });
  addEventListener("afterprint", () => {
    folded.forEach((section) => (section.open = false));
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    redrawCharts({ width: "auto" });
  });
}

async function open() {
  readAddress();
  mixColours();
  searchField();
  foldButton();
  themeButton();
  followSections();
  followPrinting();
  followLinks();
  showView();
  allSections().filter((section) => section.open).forEach(drawChartsIn);
  openFlames();
  document.querySelectorAll(".facts, .source, .verify code").forEach((place) => breakable(place));
  document.querySelectorAll(".findings, .verdict, .notes, .remark").forEach((place) => breakable(place, LONG_IN_TEXT));
  await Promise.all([...document.querySelectorAll(".table")].map(openTable));
  openTables.sort((a, b) => (a.place.compareDocumentPosition(b.place) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1));
  allSections().forEach(foldDetails);
  if (view.ids.length) landOnView();
  else showRequested();
  document.documentElement.dataset.state = "ready";
  preparePictures();
}

open();
