// What pages of reports can do beyond being read: tables are sorted and filtered, and what changes is kept up to date.
"use strict";

const words = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

// What a row has in this column: a number where the page says one; nothing sorts last.
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

// The best of numbers is wanted first, and the first of words.
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

// Text as the broker has written it for this page, by the ids of what it stands in; as it was sorted and filtered.
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
