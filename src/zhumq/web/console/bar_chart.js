/** Stacked bars over time, with a legend that says in words and numbers what the colours show. */

import { h, svg } from './dom.js';
import { count, time } from './format.js';

const WIDTH = 720;
const HEIGHT = 160;
const COLOURS = 9; // classes bar-0 to bar-8 of parts.css

/**
 * @param {{label: string, start: number, step: number, series: {name: string, values: number[]}[]}} what times in milliseconds
 * @returns {HTMLElement}
 */
export function barChart({ label, start, step, series }) {
  const steps = Math.max(...series.map((each) => each.values.length), 1);
  const sums = Array.from({ length: steps }, (_, index) => series.reduce((sum, each) => sum + (each.values[index] ?? 0), 0));
  const highest = Math.max(...sums, 1);
  const width = WIDTH / steps;
  const below = new Array(steps).fill(0);
  const bars = series.map((each, number) => each.values.map((value, index) => {
    if (!value) return null;
    const height = (value / highest) * (HEIGHT - 4);
    below[index] += height;
    return svg('rect', {
      class: `bar-${number % COLOURS}`,
      x: (index * width).toFixed(2),
      y: (HEIGHT - below[index]).toFixed(2),
      width: Math.max(width - (width > 3 ? 1 : 0), 0.5).toFixed(2),
      height: height.toFixed(2),
    });
  }));
  const legend = series.map((each, number) => h(
    'li',
    null,
    svg('svg', { viewBox: '0 0 10 10', 'aria-hidden': 'true' }, svg('rect', { class: `bar-${number % COLOURS}`, width: 10, height: 10 })),
    each.name,
    ' ',
    h('strong', null, count(each.values.reduce((sum, value) => sum + value, 0))),
  ));
  return h(
    'figure',
    { class: 'chart bars' },
    h('figcaption', null, h('span', null, label), h('span', null, 'highest ', h('strong', null, count(highest)))),
    svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, bars),
    h('p', { class: 'range' }, h('span', null, time(start)), h('span', null, time(start + steps * step))),
    h('ul', { class: 'legend' }, legend),
  );
}
