// A click on a header sorts the rows of its table: numbers the largest first, texts from A, what is unknown last.
for (const table of document.querySelectorAll(".tfperf-table:not([data-sorts])")) {
  table.dataset.sorts = "";
  const headers = [...table.tHead.rows[0].cells];
  const key = (row, column) => row.cells[column].dataset.key;
  headers.forEach((header, column) => header.addEventListener("click", () => {
    const rows = [...table.tBodies[0].rows];
    const known = rows.map((row) => key(row, column)).filter((value) => value !== undefined);
    const numeric = known.every((value) => value !== "" && !Number.isNaN(Number(value)));
    const before = header.getAttribute("aria-sort");
    const descending = before ? before === "ascending" : numeric;
    const compare = (a, b) => (numeric ? Number(a) - Number(b) : a.localeCompare(b)) * (descending ? -1 : 1);
    rows.sort((first, second) => {
      const [a, b] = [key(first, column), key(second, column)];
      if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
      return compare(a, b);
    });
    headers.forEach((other) => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
    table.tBodies[0].append(...rows);
  }));
}
