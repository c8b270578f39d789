// Filters and sorts the table of properties. Without "less than" and "ampersand", so that the page is XML, too.
const table = document.getElementById("rows"), box = document.getElementById("filter");
const rows = Array.from(table.tBodies[0].rows), field = box.querySelector("input");
const buttons = Array.from(box.querySelectorAll("button"));
const show = () => {
  const words = field.value.toLowerCase().split(" ").filter(Boolean);
  const hidden = new Set(buttons.filter((one) => one.ariaPressed === "false").map((one) => one.dataset.status));
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = hidden.has(row.dataset.status) || !words.every((word) => text.includes(word));
  }
};
for (const button of buttons) {
  button.onclick = () => { button.ariaPressed = String(button.ariaPressed === "false"); show(); };
}
field.oninput = show;
Array.from(table.tHead.rows[0].cells).forEach((cell, column) => {
  const button = document.createElement("button");
  button.append(...cell.childNodes);
  cell.append(button);
  button.onclick = () => {
    const sign = cell.ariaSort === "ascending" ? -1 : 1;
    for (const one of table.tHead.rows[0].cells) one.ariaSort = null;
    cell.ariaSort = sign > 0 ? "ascending" : "descending";
    const value = (row) => row.cells[column].dataset.value;
    rows.sort((a, b) => sign * value(a).localeCompare(value(b), "en", { numeric: true }));
    table.tBodies[0].append(...rows);
  };
});
box.hidden = false;
show();
