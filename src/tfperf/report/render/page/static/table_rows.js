// Which rows of a table are shown, and in which order. Columns are arrays; a row is its index, so nothing is copied.

async function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function rowCount(table) {
  const first = table.columns[0];
  return first ? (first.values ?? first.places).length : 0;
}

function cellText(column, row) {
  if (column.kind === "number") return valueText(column.values[row], column.unit);
  const word = column.places[row];
  return word < 0 ? UNKNOWN : column.words[word];
}

// Numbers to sort by: for text the rank of its word among all words; NaN is unknown, and comes last.
function sortKeys(column) {
  if (column.kind === "number") return Float64Array.from(column.values, (value) => value ?? NaN);
  const order = column.words.map((_, word) => word).sort((a, b) => (column.words[a] < column.words[b] ? -1 : 1));
  const ranks = new Float64Array(order.length);
  order.forEach((word, rank) => (ranks[word] = rank));
  return Float64Array.from(column.places, (word) => (word < 0 ? NaN : ranks[word]));
}

function sorted(rows, column, descending) {
  const keys = sortKeys(column);
  const sign = descending ? -1 : 1;
  const known = rows.filter((row) => !Number.isNaN(keys[row]));
  const unknown = rows.filter((row) => Number.isNaN(keys[row]));
  return known.sort((a, b) => sign * (keys[a] - keys[b]) || a - b).concat(unknown);
}

// Text and plain numbers (steps, ids) are searched; of text, each word once.
function matcher(column, query) {
  if (column.kind === "text") {
    const hits = column.words.map((word) => word.toLowerCase().includes(query));
    return (row) => column.places[row] >= 0 && hits[column.places[row]];
  }
  return column.unit === "" ? (row) => String(column.values[row] ?? "").includes(query) : null;
}

function matching(table, query) {
  const count = rowCount(table);
  const rows = Array.from({ length: count }, (_, row) => row);
  if (!query) return rows;
  const matchers = table.columns.map((column) => matcher(column, query.toLowerCase())).filter(Boolean);
  return rows.filter((row) => matchers.some((matches) => matches(row)));
}

function hasChildren(table, row) {
  return row + 1 < table.depths.length && table.depths[row + 1] > table.depths[row];
}

// Rows of a tree without those below a closed row.
function unfolded(table, rows, closed) {
  let limit = Infinity;
  return rows.filter((row) => {
    if (table.depths[row] > limit) return false;
    limit = closed.has(row) ? table.depths[row] : Infinity;
    return true;
  });
}

// A table is shown as a tree only while its rows are in their first order and none is missing.
function isTree(state) {
  return Boolean(state.table.depths) && !state.query && state.sortColumn === null;
}

function shownRows(state) {
  const rows = matching(state.table, state.query);
  if (isTree(state)) return unfolded(state.table, rows, state.closed);
  return state.sortColumn === null ? rows : sorted(rows, state.table.columns[state.sortColumn], state.descending);
}
