// Sorting and filtering of tables on report pages, and live updates of facts and rows.
"use strict";

const words = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

// Return the sort key of a row's cell: its data-value as a number, otherwise its text; null, for empty cells, sorts last.
function worth(row, column) {
  const cell = row.cells[column];
  if (!("value" in cell.dataset)) return cell.textContent.trim() || null;
  return cell.dataset.value === "" ? null : Number(cell.dataset.value);
}

function compared(one, other) {
  return typeof one === "number" && typeof other === "number" ? one - other : words.compare(one, other);
}

function sort(table, column, falling) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [worth(row, column), row]);
  rows.sort(([one], [other]) => {
    if (one === null || other === null) return (one === null) - (other === null);
    return falling ? compared(other, one) : compared(one, other);
  });
  body.append(...rows.map(([, row]) => row));
  [...table.tHead.rows[0].cells].forEach((head, each) => {
    if (each === column) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
}

// Add a sort button to each heading; the first click sorts numbers in descending order, and text in ascending order.
function sortable(table) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      sort(table, column, now ? now === "ascending" : head.classList.contains("number"));
    });
    head.append(button);
  });
}

function filtered(input) {
  const table = document.getElementById(`table-${input.dataset.filter}`);
  const count = input.parentElement.querySelector("output");
  const show = () => {
    const wanted = input.value.trim().toLowerCase();
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    const left = rows.filter((row) => !row.hidden).length;
    count.textContent = wanted ? `${left} of ${rows.length}` : "";
  };
  input.addEventListener("input", show);
  input.closest(".filter").hidden = false;
  return show;
}

// Replace the HTML of elements, given by id and escaped by the broker; then sort and filter as before.
function renew(parts, filters) {
  for (const [id, written] of Object.entries(parts)) {
    const place = document.getElementById(id);
    if (!place) continue;
    place.innerHTML = written;
    const head = place.closest("table")?.querySelector("[aria-sort]");
    if (head) sort(place.closest("table"), head.cellIndex, head.getAttribute("aria-sort") === "descending");
  }
  filters.forEach((show) => show());
}

document.querySelectorAll("table[data-sortable]").forEach(sortable);
const filters = [...document.querySelectorAll("[data-filter]")].map(filtered);
const live = document.querySelector("[data-events]");
if (live) {
  const source = new EventSource(live.dataset.events);
  source.addEventListener("parts", (event) => renew(JSON.parse(event.data), filters));
  addEventListener("pagehide", () => source.close());
}
