/** Saves what a page shows as a file: a JSON document in each line, or a table for spreadsheets. */

const KEPT_MS = 60_000; // until the browser has read it
const COLUMNS = ['topic', 'partition', 'offset', 'time', 'key', 'value', 'headers', 'cut'];
// A spreadsheet takes a cell that begins so for a formula, whoever sent the message.
const FORMULA = /^[=+\-@\t\r]/;

/**
 * @param {Object[]} items
 * @param {string} name of the file
 */
export function saveLines(items, name) {
  save(items.map((each) => `${JSON.stringify(each)}\n`).join(''), name, 'application/x-ndjson');
}

/**
 * Messages as comma-separated values (RFC 4180): text as it is, decoded by its schema if it has one, other bytes as base64.
 * @param {Object[]} messages
 * @param {string} name of the file
 */
export function saveTable(messages, name) {
  const rows = messages.map((each) => [
    each.topic,
    each.partition,
    each.offset,
    each.timestamp_ms === null ? '' : new Date(each.timestamp_ms).toISOString(),
    textOf(each.key),
    textOf(each.value),
    each.headers.length ? JSON.stringify(each.headers.map((header) => [header.name, textOf(header.value)])) : '',
    each.key?.is_cut || each.value?.is_cut ? 'true' : '',
  ]);
  // The mark at the beginning tells spreadsheets that it is UTF-8.
  save(`\ufeff${[COLUMNS, ...rows].map((row) => `${row.map(cell).join(',')}\r\n`).join('')}`, name, 'text/csv');
}

function textOf(content) {
  return content?.decoded?.text ?? content?.text ?? content?.base64 ?? '';
}

function cell(content) {
  const text = typeof content === 'string' && FORMULA.test(content) ? `'${content}` : String(content);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function save(text, name, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), KEPT_MS);
}
