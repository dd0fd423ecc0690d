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

// The address names the sections that somebody unfolded, the last one first, so that a copied link shows the same.
function rememberUnfolded(last) {
  const open = allSections().filter((section) => section.open && section.dataset.unfolded === "true");
  const ids = [last, ...open].filter((section) => section?.open).map(idOf);
  const hash = [...new Set(ids)].join(",");
  // Where a page is shown inside another one (a notebook), its address cannot be changed.
  try {
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  } catch {
    return;
  }
}

function unfoldLinked() {
  const ids = decodeURIComponent(location.hash.slice(1)).split(",");
  const linked = allSections().filter((section) => ids.includes(idOf(section)));
  linked.forEach((section) => unfold(section));
  if (ids.length > 1) document.getElementById(ids[0])?.scrollIntoView();
}

function unfold(section) {
  section.open = true;
  section.dataset.unfolded = "true";
}

function followFolding() {
  for (const section of allSections()) {
    section.addEventListener("toggle", () => section.open && drawChartsIn(section));
    section.querySelector("summary").addEventListener("click", () => {
      // The click is what folds or unfolds it, after this.
      setTimeout(() => {
        section.dataset.unfolded = String(section.open);
        rememberUnfolded(section);
      });
    });
  }
  document.querySelectorAll("a.place").forEach((link) => link.addEventListener("click", (event) => {
    event.preventDefault();
    showPlace(link);
  }));
  document.querySelectorAll("main a:not(.place), nav a").forEach((link) => link.addEventListener("click", () => {
    const section = document.getElementById(link.hash.slice(1))?.closest("details.section");
    if (section) unfold(section);
  }));
  addEventListener("hashchange", unfoldLinked);
  unfoldLinked();
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
    folded = allSections().filter((section) => !section.open);
    folded.forEach((section) => {
      section.open = true;
      drawChartsIn(section);
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
  foldButton();
  themeButton();
  followSections();
  followPrinting();
  followFolding();
  allSections().filter((section) => section.open).forEach(drawChartsIn);
  openFlames();
  document.querySelectorAll(".findings, .verdict, .facts, .notes, .remark, .source").forEach(breakable);
  await Promise.all([...document.querySelectorAll(".table")].map(openTable));
  document.documentElement.dataset.state = "ready";
}

open();
