/** Charts of figures over time, as the brokers have kept them. A step of which nothing is known is a gap. */

import { h, svg } from './dom.js';
import { clock, time } from './format.js';

const WIDTH = 600;
const HEIGHT = 96;
const ROOM = 3; // above the highest point, so that the line is not cut
const DAY_MS = 86_400_000;
/** How many steps a key moves what is read. */
const BY_KEY = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };

/**
 * @typedef {{startMs: number, stepMs: number, series: Object<string, (number|null)[]>}} Figures
 * @param {{label: string, lines: [string, string][], show: (value: number) => string, top?: string}} what
 *   `lines`: the names of figures, and what they are called; `top`: the figure that is the upper end of the scale
 * @returns {{element: HTMLElement, update: (figures: Figures) => void}}
 */
export function lineChart({ label, lines, show, top = null }) {
  const strokes = lines.map((_, index) => svg('path', { class: `stroke stroke-${index}`, 'vector-effect': 'non-scaling-stroke' }));
  const area = svg('path', { class: 'area' });
  const marker = svg('line', { class: 'marker', y1: 0, y2: HEIGHT, visibility: 'hidden', 'vector-effect': 'non-scaling-stroke' });
  const drawing = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, area, strokes, marker);
  const values = lines.map(() => h('strong', null, '–'));
  const swatch = (index) => svg(
    'svg',
    { class: 'swatch', viewBox: '0 0 16 8', 'aria-hidden': 'true' },
    svg('line', { x1: 0, x2: 16, y1: 4, y2: 4, class: `stroke stroke-${index}` }),
  );
  const legend = lines.map(([, text], index) => h(
    'span',
    { class: 'line-name' },
    lines.length === 1 ? null : swatch(index),
    text ? `${text} ` : null,
    values[index],
  ));
  const highest = h('span', { class: 'highest' });
  const from = h('span', null);
  const to = h('span', null);
  const plot = h(
    'div',
    { class: 'plot', role: 'slider', tabindex: 0, 'aria-label': label, 'aria-valuemin': 0, 'aria-valuemax': 0, 'aria-valuenow': 0, 'aria-valuetext': 'nothing is known yet' },
    drawing,
    highest,
  );
  let figures = null;
  let chosen = null; // the step that the reader points at

  /** The newest step with a figure, or the last one. */
  function newest() {
    const count = stepCount();
    for (let step = count - 1; step >= 0; step -= 1) {
      if (lines.some(([name]) => valueAt(name, step) !== null)) return step;
    }
    return Math.max(count - 1, 0);
  }

  function stepCount() {
    return figures?.series[lines[0][0]]?.length ?? 0;
  }

  function valueAt(name, step) {
    return figures.series[name]?.[step] ?? null;
  }

  function tell() {
    const step = Math.min(chosen ?? newest(), Math.max(stepCount() - 1, 0));
    const known = lines.map(([name]) => valueAt(name, step));
    known.forEach((value, index) => { values[index].textContent = value === null ? '–' : show(value); });
    const at = figures.startMs + step * figures.stepMs;
    const when = chosen === null ? 'now' : momentOf(at, figures.stepMs * stepCount());
    to.textContent = when;
    to.classList.toggle('chosen', chosen !== null);
    plot.setAttribute('aria-valuemax', Math.max(stepCount() - 1, 0));
    plot.setAttribute('aria-valuenow', step);
    const texts = lines.map(([, text], index) => `${text} ${known[index] === null ? 'not known' : show(known[index])}`.trim());
    plot.setAttribute('aria-valuetext', `${texts.join(', ')}; ${when}`);
    const x = stepCount() > 1 ? (step / (stepCount() - 1)) * WIDTH : 0;
    marker.setAttribute('x1', x);
    marker.setAttribute('x2', x);
    marker.setAttribute('visibility', chosen === null ? 'hidden' : 'visible');
  }

  function choose(step) {
    if (stepCount() === 0) return;
    chosen = step === null ? null : Math.max(0, Math.min(step, stepCount() - 1));
    tell();
  }

  plot.addEventListener('pointermove', (event) => {
    const { left, width } = plot.getBoundingClientRect();
    choose(Math.round(((event.clientX - left) / width) * (stepCount() - 1)));
  });
  plot.addEventListener('pointerleave', () => choose(null));
  plot.addEventListener('blur', () => choose(null));
  plot.addEventListener('keydown', (event) => {
    const present = chosen ?? newest();
    if (event.key === 'Escape') choose(null);
    else if (event.key === 'Home') choose(0);
    else if (event.key === 'End') choose(stepCount() - 1);
    else if (event.key in BY_KEY) choose(present + BY_KEY[event.key]);
    else return;
    event.preventDefault();
  });

  return {
    element: h('figure', { class: 'chart' }, h('figcaption', null, h('span', null, label), h('span', { class: 'legend' }, legend)), plot, h('div', { class: 'range' }, from, to)),
    update(next) {
      const before = figures;
      figures = next;
      // What the reader points at stays the same moment while the chart moves on.
      if (chosen !== null && before !== null) chosen = Math.max(0, Math.round((before.startMs + chosen * before.stepMs - next.startMs) / next.stepMs));
      const known = lines.flatMap(([name]) => (next.series[name] ?? []).filter((each) => each !== null));
      const limit = top === null ? null : (next.series[top] ?? []).findLast((each) => each !== null);
      const scale = Math.max(limit ?? 0, ...known, 1e-9);
      lines.forEach(([name], index) => strokes[index].setAttribute('d', pathOf(next.series[name] ?? [], scale)));
      area.setAttribute('d', lines.length === 1 ? areaOf(next.series[lines[0][0]] ?? [], scale) : '');
      highest.textContent = known.length ? show(scale > 1e-9 ? scale : 0) : 'Nothing is known of this time.';
      from.textContent = momentOf(next.startMs, next.stepMs * stepCount());
      tell();
    },
  };
}

function momentOf(milliseconds, spanMs) {
  return spanMs >= DAY_MS / 2 ? time(milliseconds).slice(5, 16) : clock(new Date(milliseconds)).slice(0, spanMs > DAY_MS / 48 ? 5 : 8);
}

function placeOf(value, step, count, scale) {
  const x = count > 1 ? (step / (count - 1)) * WIDTH : 0;
  return `${x.toFixed(1)} ${(HEIGHT - 1 - (value / scale) * (HEIGHT - 1 - ROOM)).toFixed(1)}`;
}

/** The runs of steps that are known: [first, last]. */
function runs(values) {
  const found = [];
  values.forEach((value, step) => {
    if (value === null) return;
    if (found.length && found.at(-1)[1] === step - 1) found.at(-1)[1] = step;
    else found.push([step, step]);
  });
  return found;
}

function pathOf(values, scale) {
  return runs(values).map(([first, last]) => {
    const points = values.slice(first, last + 1).map((value, index) => placeOf(value, first + index, values.length, scale));
    // A single step is a dot.
    return `M${points.join('L')}${first === last ? 'h0.5' : ''}`;
  }).join('');
}

function areaOf(values, scale) {
  return runs(values).map(([first, last]) => {
    const points = values.slice(first, last + 1).map((value, index) => placeOf(value, first + index, values.length, scale));
    const foot = (step) => placeOf(0, step, values.length, scale);
    return `M${foot(first)}L${points.join('L')}L${foot(last)}Z`;
  }).join('');
}
