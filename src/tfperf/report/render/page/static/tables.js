// Tables that can be sorted, searched and paged through. Only the rows of one page are ever in the document.

const PAGE_ROWS = 25;
const SEARCH_FROM = 11;

function element(name, properties = {}, children = []) {
  const created = Object.assign(document.createElement(name), properties);
  created.append(...children);
  return created;
}

const LONGEST_WORD = 20;
const LONG_NAME = 18;
const LONG_IN_TEXT = 40;
const WORD_ENDS = /(?<=[^/:_,<][/:_,<]+)(?=[^/:_,<])/;
const HUMPS = /(?<=[A-Za-z0-9])(?=[A-Z][a-z])/;

// The words of a name, each with what ends it; those of over `limit` letters in parts: `conv2d_`, `1/`, `Backprop`, `Filter`.
function partsOf(name, limit = 0) {
  return name.split(WORD_ENDS).flatMap((word) => (word.length > limit ? word.split(HUMPS) : word));
}

// Let names of at least `least` letters break where their words end: after `/`, `_`, `::`. The words between them stay
// whole. Nothing is added that copying would take along.
function breakable(place, least = LONG_NAME) {
  const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
  const isLong = (text) => text.split(/\s/).some((word) => word.length >= least);
  const long = [];
  while (walker.nextNode()) if (isLong(walker.currentNode.data)) long.push(walker.currentNode);
  for (const node of long) {
    const words = node.data.split(/(?<=\s)(?=\S)/);
    const [first, ...rest] = words.flatMap((word) => (isLong(word) ? partsOf(word, LONGEST_WORD) : word));
    node.replaceWith(first, ...rest.flatMap((part) => [document.createElement("wbr"), part]));
  }
}

function visibleColumns(state) {
  const columns = state.table.columns.map((column, number) => ({ ...column, number }));
  return state.allColumns ? columns : columns.filter((column) => column.main);
}

function isNumeric(column) {
  return column.kind === "number" || column.unit !== "";
}

function headCell(state, column) {
  const button = element("button", { type: "button", textContent: column.title });
  button.addEventListener("click", () => sortBy(state, column.number));
  const cell = element("th", { scope: "col", className: isNumeric(column) ? "number" : "" }, [button]);
  if (state.sortColumn === column.number) cell.ariaSort = state.descending ? "descending" : "ascending";
  return cell;
}

// The first click sorts as is likely wanted (largest number, first name), the second in reverse, the third not at all.
function sortBy(state, column) {
  const isFirst = state.sortColumn !== column;
  const largestFirst = state.table.columns[column].kind === "number";
  if (!isFirst && state.descending !== largestFirst) state.sortColumn = null;
  else [state.sortColumn, state.descending] = [column, isFirst ? largestFirst : !largestFirst];
  update(state);
  const place = visibleColumns(state).findIndex(({ number }) => number === column);
  state.head.querySelectorAll("button")[place].focus();
}

function branch(state, row, text) {
  const depth = state.table.depths[row];
  let sign = element("span", { className: "leaf" });
  if (hasChildren(state.table, row)) {
    const isClosed = state.closed.has(row);
    sign = element("button", { type: "button", textContent: isClosed ? "▸" : "▾", ariaExpanded: String(!isClosed) });
    sign.ariaLabel = `Rows below ${text}`;
    sign.addEventListener("click", () => toggle(state, row));
  }
  sign.style.marginLeft = `${Math.min(depth, 40) * 1.1}em`;
  return element("span", { className: "branch" }, [sign, element("span", { textContent: text })]);
}

function toggle(state, row) {
  if (!state.closed.delete(row)) state.closed.add(row);
  update(state, state.page);
  state.body.querySelector(`tr[data-row="${row}"] button`).focus();
}

function bodyRow(state, columns, row) {
  const cells = columns.map((column) => {
    const text = cellText(column, row);
    const inTree = column.tree && isTree(state);
    const kind = isNumeric(column) ? "number" : text.length > 24 ? "wide" : "short";
    const cell = element("td", { className: kind }, [inTree ? branch(state, row, text) : text]);
    const whole = column.whole === null ? text : cellText(state.table.columns[column.whole], row);
    if (whole !== text) cell.title = whole;
    // A short name stays on one line, wherever a word in it ends.
    if (kind === "wide") breakable(cell);
    return cell;
  });
  const tableRow = element("tr", {}, cells);
  tableRow.dataset.row = row;
  return tableRow;
}

function update(state, page = 0) {
  state.rows = shownRows(state);
  state.page = Math.min(page, Math.max(Math.ceil(state.rows.length / PAGE_ROWS) - 1, 0));
  drawPage(state);
}

function drawPage(state) {
  const columns = visibleColumns(state);
  const from = state.page * PAGE_ROWS;
  const rows = state.rows.slice(from, from + PAGE_ROWS);
  state.head.replaceChildren(element("tr", {}, columns.map((column) => headCell(state, column))));
  state.body.replaceChildren(...rows.map((row) => bodyRow(state, columns, row)));
  drawPosition(state, from, rows.length);
}

function drawPosition(state, from, count) {
  const [all, shown] = [rowCount(state.table), state.rows.length].map((number) => number.toLocaleString("en-US"));
  const range = `${(from + 1).toLocaleString("en-US")}–${(from + count).toLocaleString("en-US")}`;
  const which = state.query ? `${shown} matching rows (${all} in all)` : `${shown} rows`;
  state.position.textContent = count ? `Rows ${range} of ${which}` : `No match in ${all} rows`;
  state.previous.disabled = from === 0;
  state.next.disabled = from + count >= state.rows.length;
  const isPaged = state.rows.length > PAGE_ROWS;
  state.previous.hidden = state.next.hidden = !isPaged;
  state.position.hidden = !isPaged && !state.query;
}

function pageButton(state, text, change) {
  const button = element("button", { type: "button", textContent: text });
  button.ariaLabel = `${text} rows of ${state.title}`;
  button.addEventListener("click", () => {
    state.page += change;
    drawPage(state);
  });
  return button;
}

function searchBox(state) {
  const box = element("input", { type: "search", autocomplete: "off", spellcheck: false });
  box.ariaLabel = `Search in ${state.title}`;
  state.box = box;
  box.addEventListener("input", () => {
    state.query = box.value.trim();
    update(state);
  });
  return element("label", {}, ["Search", box]);
}

function columnSwitch(state) {
  const box = element("input", { type: "checkbox" });
  box.addEventListener("change", () => {
    state.allColumns = box.checked;
    drawPage(state);
  });
  return element("label", {}, [box, "All columns"]);
}

function addControls(state, place) {
  const tools = place.querySelector(".tools");
  if (rowCount(state.table) >= SEARCH_FROM) tools.append(searchBox(state));
  if (state.table.columns.some((column) => !column.main)) tools.append(columnSwitch(state));
  state.previous = pageButton(state, "Previous", -1);
  state.next = pageButton(state, "Next", 1);
  state.position = element("p", { role: "status" });
  const pages = element("div", { className: "pages" }, [state.previous, state.next, state.position]);
  place.querySelector(".scroll").after(pages);
}

const openTables = [];

// Search a table for a text, and go there; a short table is shown whole.
function searchIn(state, text) {
  if (state.box) {
    state.box.value = text;
    state.query = text;
    update(state);
  }
  remember({ ids: [state.place.id] }, true);
  land(state.place);
}

// Search the first table of a section that can be searched; where all are too short for that, show the first.
function showInTable(sectionId, text) {
  const section = document.getElementById(sectionId)?.closest("details.section");
  const states = openTables.filter(({ place }) => section?.contains(place));
  const state = states.find(({ box }) => box) ?? states[0];
  if (state) searchIn(state, text);
}

async function openTable(place) {
  const data = place.querySelector(".table-data");
  const table = await unpacked(data.textContent);
  data.remove();
  const state = {
    table, place, title: place.querySelector("h3").textContent, query: "", sortColumn: null, descending: false, page: 0,
    closed: new Set(), allColumns: false,
    head: place.querySelector("thead"), body: place.querySelector("tbody"),
  };
  if (!rowCount(table)) return;
  addControls(state, place);
  update(state);
  openTables.push(state);
  place.dataset.rows = rowCount(table);
  place.classList.add("scripted");
}
