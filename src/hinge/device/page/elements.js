// Elements of the pages; all text goes in as text.

/** An element with classes and children, as make("td.number", "17"). */
export function make(what, ...children) {
  const [name, ...classes] = what.split(".");
  const element = document.createElement(name);
  element.className = classes.join(" ");
  element.append(...children);
  return element;
}

/** A table: heads are "name", "name.n" for numbers, or cells; a row's first cell is its heading. */
export function table(caption, heads, rows) {
  const columns = heads.map((head) => {
    const cell = head instanceof Element ? head : make(head.includes(".") ? "th.number" : "th", head.split(".")[0]);
    cell.scope = "col";
    return cell;
  });
  const lines = rows.map((row) => make("tr", ...row.map((value, k) => {
    const cell = make(k ? columns[k].className ? "td.number" : "td" : "th", value);
    if (!k) cell.scope = "row";
    return cell;
  })));
  return make("table", make("caption", caption), make("thead", make("tr", ...columns)), make("tbody", ...lines));
}

export const orDash = (value, format) => value === null || value === undefined ? "–" : format(value);
