// Elements, numbers and tables. Text from results becomes text nodes, never markup.
'use strict';

/** An element; `attributes` have fixed names, children are nodes or become text. */
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Three significant digits or more, without an exponent. */
function number(value) {
  if (!Number.isFinite(value)) return '–';
  if (value >= 1000) return Math.round(value).toLocaleString('en');
  if (value >= 100) return value.toFixed(0);
  if (value >= 10) return value.toFixed(1);
  if (value >= 1) return value.toFixed(2);
  return String(Number(value.toPrecision(3)));
}

/** Half the distance of the quartiles, in percent of the median. */
function spreadPercent(row) {
  return row.n > 1 && row.median > 0 ? 50 * (row.high - row.low) / row.median : null;
}

/** "123 ± 4 %" as nodes. */
function score(row) {
  if (!row) return '–';
  if (row.problem) return element('span', {class: 'problem'}, `no score: ${row.problem}`);
  const spread = spreadPercent(row);
  const text = element('span', {}, number(row.median));
  if (spread !== null) text.append(element('span', {class: 'spread'}, ` ± ${spread.toFixed(1)} %`));
  return text;
}

function cut(text, length) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

/**
 * A table that sorts by a click on a column's head.
 * columns: {title, cell(row) → node or text, key(row) → what to sort by, class}; the first column is
 * the row's head. `cards`: on a phone each row is a card, its titles 'narrow' or 'wide'.
 */
function table(caption, columns, rows, {cards} = {}) {
  const body = element('tbody');
  const heads = columns.map((column) => element('th', {scope: 'col', class: column.class}));
  const fill = (ordered) => {
    body.replaceChildren(...ordered.map((row) => element('tr', {}, ...columns.map((column, i) => {
      const attributes = {class: column.class, 'data-label': column.title, ...column.attributes?.(row)};
      if (i > 0) return element('td', attributes, column.cell(row));
      return element('th', {...attributes, scope: 'row'}, column.cell(row));
    }))));
  };
  const sortBy = (column, head) => {
    const descending = head.getAttribute('aria-sort') === 'ascending';
    for (const other of heads) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
    const sign = descending ? -1 : 1;
    fill([...rows].sort((a, b) => sign * compareKeys(column.key(a), column.key(b))));
  };
  columns.forEach((column, i) => {
    if (!column.key) return heads[i].append(column.title);
    const button = element('button', {type: 'button'}, column.title);
    button.addEventListener('click', () => sortBy(column, heads[i]));
    heads[i].append(button);
  });
  fill(rows);
  const head = element('thead', {}, element('tr', {}, ...heads));
  const whole = element('table', {class: cards && `cards ${cards}`}, element('caption', {}, caption), head, body);
  return element('div', {class: 'table', tabindex: 0, role: 'region', 'aria-label': caption}, whole);
}

/** Numbers by size, text by letters and the numbers in it; what is missing comes last. */
function compareKeys(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return (Number.isNaN(a) ? Infinity : a) - (Number.isNaN(b) ? Infinity : b);
  return String(a ?? '').localeCompare(String(b ?? ''), 'en', {numeric: true});
}

/** The distinct values in the order in which they sort. */
function distinct(values) {
  return [...new Set(values)].sort(compareKeys);
}

/** Map from key(row) to the rows with it, in order. */
function groupBy(rows, key) {
  const groups = new Map();
  for (const row of rows) {
    const of = key(row);
    if (!groups.has(of)) groups.set(of, []);
    groups.get(of).push(row);
  }
  return groups;
}
