/** Tables whose rows stay where they are while what they show changes. */

import { h, keyed, patch } from './dom.js';

/**
 * @template T
 * @typedef {Object} Column
 * @property {string} title
 * @property {(item: T) => *} cell what the cell shows: a node, a text, or an array of them
 * @property {(item: T) => (number|string|null)} [sort] makes the column sortable
 * @property {'number'|'text'|'actions'|'wide'} [kind]
 */

/**
 * @template T
 * @param {{caption: string, columns: Column<T>[], key: (item: T) => string, empty?: *|(() => *)}} what
 * @returns {{element: HTMLElement, update: (items: T[]) => void}}
 */
export function table({ caption, columns, key, empty = 'None.' }) {
  let items = null;
  let sorting = { column: null, isDescending: false };
  const headings = columns.map((column) => heading(column));
  const body = h('tbody', { role: 'rowgroup' });
  const nothing = h('p', { class: 'empty', hidden: true });
  const grid = h(
    // The roles are said: on a narrow screen the rows are shown as blocks, which would end their being a table.
    'table',
    { role: 'table' },
    h('caption', { class: 'unseen' }, caption),
    h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, headings)),
    body,
  );
  // A table that is wider than the screen scrolls, also by keys.
  const scroller = h('div', { class: 'scroller', role: 'group', 'aria-label': caption, tabindex: 0, hidden: true }, grid);
  const waiting = h('p', { class: 'empty waiting' }, 'Reading …');

  function heading(column) {
    const attributes = { scope: 'col', role: 'columnheader', class: column.kind ?? 'text' };
    if (column.kind === 'actions') return h('th', attributes, h('span', { class: 'unseen' }, column.title));
    if (!column.sort) return h('th', attributes, column.title);
    return h('th', attributes, h('button', { type: 'button', class: 'sort', onclick: () => sortBy(column) }, column.title));
  }

  function sortBy(column) {
    const isSame = sorting.column === column;
    // Numbers are sorted to see the largest, names to see the first.
    sorting = { column, isDescending: isSame ? !sorting.isDescending : column.kind === 'number' };
    columns.forEach((each, index) => {
      if (each === column) headings[index].setAttribute('aria-sort', sorting.isDescending ? 'descending' : 'ascending');
      else headings[index].removeAttribute('aria-sort');
    });
    draw();
  }

  function sorted() {
    if (sorting.column === null) return items;
    const { sort } = sorting.column;
    const sign = sorting.isDescending ? -1 : 1;
    return [...items].sort((one, other) => sign * compare(sort(one), sort(other)));
  }

  function drawRow(row, item) {
    const text = JSON.stringify(item);
    columns.forEach((column, index) => {
      if (column.kind !== 'actions') patch(row.cells[index], column.cell(item));
      // Buttons act on what the row shows now, also where they look as they did before.
      else if (row.itemText !== text) renew(row.cells[index], column.cell(item));
    });
    row.itemText = text;
  }

  function draw() {
    keyed(body, sorted(), {
      key,
      create: () => h('tr', { role: 'row' }, columns.map((column) => h('td', { role: 'cell', class: column.kind ?? 'text', 'data-title': column.title }))),
      update: drawRow,
    });
    waiting.remove();
    if (items.length === 0) patch(nothing, typeof empty === 'function' ? empty() : empty);
    nothing.hidden = items.length > 0;
    scroller.hidden = items.length === 0;
  }

  return {
    element: h('div', { class: columns.some((each) => each.kind === 'wide') ? 'table full' : 'table' }, waiting, nothing, scroller),
    update(next) {
      items = next;
      draw();
    },
  };
}

/** Replace what a cell shows; the button that has the focus keeps it. */
function renew(cell, content) {
  const focused = [...cell.querySelectorAll('button')].indexOf(document.activeElement);
  cell.replaceChildren(content);
  if (focused >= 0) cell.querySelectorAll('button')[focused]?.focus();
}

function compare(one, other) {
  if (one === other) return 0;
  if (one === null || one === undefined) return -1;
  if (other === null || other === undefined) return 1;
  return one < other ? -1 : 1;
}
