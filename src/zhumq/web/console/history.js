/** The charts of a page: the last minutes, hours or day as the brokers have kept them, and going on. */

import { get } from './api.js';
import { lineChart } from './chart.js';
import { h, patch } from './dom.js';
import { bytes, count } from './format.js';
import { button, section } from './parts.js';
import { setAddress } from './router.js';

const MINUTE_MS = 60_000;
const REFRESH_MS = 5_000; // a broker has a new figure every ten seconds
const RANGES = [
  ['15min', '15 min', 15 * MINUTE_MS, 90],
  ['1h', '1 hour', 60 * MINUTE_MS, 180],
  ['6h', '6 hours', 360 * MINUTE_MS, 180],
  ['1d', '1 day', 1440 * MINUTE_MS, 288],
];
const RANGE_DEFAULT = '15min'; // what has just happened, and a new broker has no more

/** A rate: few digits, as it is a mean. */
export function rate(value) {
  return value < 10 ? value.toFixed(value < 1 && value > 0 ? 2 : 1).replace(/\.0+$/, '') : count(Math.round(value));
}

export function byteRate(value) {
  return `${bytes(value)}/s`;
}

/**
 * The section with the charts of the cluster, of a topic or of a group.
 * @param {Page} page
 * @param {{what: 'cluster'|'topic'|'group', name?: string, charts: Object[]}} what `charts`: as `lineChart` takes them
 */
export function historySection(page, { what, name = null, charts }) {
  let range = RANGES.find(([id]) => id === page.query.get('range')) ?? RANGES.find(([id]) => id === RANGE_DEFAULT);
  const drawn = charts.map(lineChart);
  const missing = h('div', null);
  const buttons = RANGES.map((each) => button(each[1], () => choose(each), { 'aria-pressed': String(each === range), 'aria-label': `The last ${each[1]}` }));
  const choice = h('div', { class: 'views', role: 'group', 'aria-label': 'How much time the charts show' }, buttons);

  function choose(next) {
    range = next;
    buttons.forEach((each, index) => each.setAttribute('aria-pressed', String(RANGES[index] === range)));
    setAddress({ range: range[0] === RANGE_DEFAULT ? '' : range[0] });
    reading.refresh();
  }

  const reading = page.watch({
    everyMs: REFRESH_MS,
    load: async (signal) => {
      const [id, , lastMs, points] = range;
      return { id, found: await get(`/history/${what}`, { name, last_ms: lastMs, points }, { signal }) };
    },
    show({ id, found }) {
      if (id !== range[0]) return; // Another range was chosen meanwhile.
      patch(missing);
      for (const each of drawn) each.update({ startMs: found.start_ms, stepMs: found.step_ms, series: found.series });
    },
    // A broker may keep no history, and a user may not describe the cluster: the rest of the page is shown all the same.
    fail: (problem) => patch(missing, h('p', { class: 'empty' }, `There are no charts: ${problem.message}.`)),
  });
  return section('History', null, choice, missing, h('div', { class: 'charts' }, drawn.map((each) => each.element)));
}
