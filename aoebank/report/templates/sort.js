const UNITS = {
  "": 1, x: 1, "%": 1, us: 1, ms: 1e3, s: 1e6, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30,
};
function value(row, column) {
  const cell = row.cells[column];
  const text = cell.dataset.sort ?? cell.textContent.trim();
  if (text === "" || text === "-") return -Infinity;
  const plain = text.replace(/,(?=\d{3}(?!\d))/g, "");  // the commas of thousands
  const figure = plain.match(/^(-?\d+(?:\.\d*)?(?:e[-+]?\d+)?) ?(%|[A-Za-z]*)$/);
  const isKnown = figure && Object.hasOwn(UNITS, figure[2]);
  return isKnown ? figure[1] * UNITS[figure[2]] : text.toLowerCase();
}
function compare(a, b) {
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}
for (const head of document.querySelectorAll("th")) {
  head.addEventListener("click", () => {
    const isFirst = !("order" in head.dataset);  // numbers start with the largest
    const isDown = isFirst ? head.classList.contains("right") : head.dataset.order === "up";
    for (const other of head.parentNode.cells) delete other.dataset.order;
    head.dataset.order = isDown ? "down" : "up";
    const body = head.closest("table").tBodies[0];
    const column = head.cellIndex;
    const rows = [...body.rows].map((row, place) => [value(row, column), place, row]);
    rows.sort((a, b) => (isDown ? -1 : 1) * compare(a[0], b[0]) || a[1] - b[1]);
    body.append(...rows.map((each) => each[2]));
  });
  head.tabIndex = 0;
  head.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    head.click();
  });
}
