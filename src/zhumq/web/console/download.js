/** Saves what a page shows as a file: a JSON document in each line. */

const KEPT_MS = 60_000; // until the browser has read it

/**
 * @param {Object[]} items
 * @param {string} name of the file
 */
export function saveLines(items, name) {
  const text = items.map((each) => `${JSON.stringify(each)}\n`).join('');
  const address = URL.createObjectURL(new Blob([text], { type: 'application/x-ndjson' }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), KEPT_MS);
}
