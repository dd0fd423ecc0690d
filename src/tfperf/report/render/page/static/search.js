// One search over the rows of all tables, in the head of the page: `/` leads there, results lead to the tables.

const SEARCH_AFTER_MS = 120;
const MOST_RESULTS = 40;

function foundTables(query) {
  return openTables.map((state) => ({ state, count: matching(state.table, query).length })).filter(({ count }) => count);
}

function rowsText(count) {
  return `${count.toLocaleString("en-US")} ${count === 1 ? "row" : "rows"}`;
}

function searchField() {
  const box = element("input", { type: "search", autocomplete: "off", spellcheck: false, placeholder: "Search all ( / )" });
  box.ariaLabel = "Search all tables";
  const status = element("p", { role: "status" });
  const list = element("ul");
  const results = element("div", { className: "results", hidden: true }, [status, list]);
  const place = element("search", { className: "everywhere" }, [box, results]);
  const close = () => (results.hidden = true);
  const show = () => {
    const query = box.value.trim();
    results.hidden = !query;
    if (!query) return;
    const found = foundTables(query);
    const rows = found.reduce((sum, { count }) => sum + count, 0);
    const tables = `${found.length} ${found.length === 1 ? "table" : "tables"}`;
    status.textContent = found.length ? `${rowsText(rows)} in ${tables}` : "No match in any table";
    list.replaceChildren(...found.slice(0, MOST_RESULTS).map(({ state, count }) => {
      const section = state.place.closest("details.section").querySelector("h2").textContent;
      const title = section === state.title ? state.title : `${section}: ${state.title}`;
      const button = element("button", { type: "button" }, [element("span", { textContent: title }), element("span", { textContent: rowsText(count) })]);
      button.addEventListener("click", () => {
        close();
        searchIn(state, query);
      });
      return element("li", {}, [button]);
    }));
  };
  let timer;
  box.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(show, SEARCH_AFTER_MS);
  });
  box.addEventListener("focus", show);
  place.addEventListener("keydown", (event) => {
    const stops = [box, ...list.querySelectorAll("button")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      stops[Math.min(Math.max(stops.indexOf(document.activeElement) + step, 0), stops.length - 1)].focus();
    } else if (event.key === "Enter" && event.target === box) {
      clearTimeout(timer);
      show();
      list.querySelector("button")?.click();
    } else if (event.key === "Escape") {
      close();
    }
  });
  document.addEventListener("pointerdown", (event) => place.contains(event.target) || close());
  place.addEventListener("focusout", (event) => event.relatedTarget && !place.contains(event.relatedTarget) && close());
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (event.key !== "/" || isTyping || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    box.focus();
    box.select();
  });
  document.querySelector(".choices").append(place);
}
