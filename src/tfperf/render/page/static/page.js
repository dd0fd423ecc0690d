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
      if (isIntersecting) markCurrent(links, target.id);
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  document.querySelectorAll("main > section").forEach((section) => watcher.observe(section));
}

function markCurrent(links, id) {
  links.forEach((link, section) => (section === id ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
}

// Paper is light and narrower than a window.
function followPrinting() {
  let theme;
  addEventListener("beforeprint", () => {
    theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    redrawCharts({ width: PAPER_WIDTH });
  });
  addEventListener("afterprint", () => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    redrawCharts({ width: "auto" });
  });
}

async function open() {
  themeButton();
  followSections();
  followPrinting();
  JSON.parse(document.getElementById("charts").textContent).forEach(drawChart);
  await Promise.all([...document.querySelectorAll(".table")].map(openTable));
  document.documentElement.dataset.state = "ready";
}

open();
