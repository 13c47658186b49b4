/** One pipeline: its last run, what each sink has done, and the findings of an inspection as charts. */

import { get } from '../api.js';
import { barChart } from '../bar_chart.js';
import { lineChart } from '../chart.js';
import { h, patch, path } from '../dom.js';
import { bytes, count, duration, plural, visible } from '../format.js';
import { badge, facts, moment, problemBox, section, topicLink } from '../parts.js';
import { table } from '../table.js';
import { stateBadge } from './pipelines.js';

const BAD_KINDS = ['bad rows', 'must be empty'];
const STEP_MS = 4000;
const STEPS_MAX = 150; // of the chart

export default function showPipeline(page) {
  const { pipeline } = page.params;
  const about = h('div', null);
  const failure = h('div', null);
  const found = h('div', null);
  const lag = lineChart({ label: 'Messages behind the latest', lines: [['lag', '']], show: (value) => count(Math.round(value)) });
  const lags = []; // since the page was opened
  const lagBox = h('div', { hidden: true }, lag.element);
  const sinks = table({
    caption: 'Sinks',
    key: (each) => each.name,
    empty: 'It has not written to a sink yet.',
    columns: [
      { title: 'Sink', cell: (each) => h('span', { class: 'name' }, visible(each.name)) },
      { title: 'Writes to', cell: target },
      { title: 'Behind', kind: 'number', cell: (each) => count(each.lag), sort: (each) => each.lag },
      { title: 'Rows in', kind: 'number', cell: (each) => count(each.rows_in), sort: (each) => each.rows_in },
      { title: 'Rows out', kind: 'number', cell: rowsOut, sort: (each) => each.rows_out },
      { title: 'Rows a second', kind: 'number', cell: (each) => count(each.rate), sort: (each) => each.rate },
      { title: 'State', cell: (each) => stateWords(each), sort: (each) => each.state_rows },
      { title: 'Watermark', cell: (each) => watermark(each) },
      { title: 'Last batch', cell: (each) => batchWords(each), sort: (each) => each.batch_ms },
    ],
  });
  page.show(page.heading(visible(pipeline), { above: [['Pipelines', '/pipelines']] }), failure, about, lagBox, section('Sinks', null, sinks.element), found);
  let shown = null;
  page.watch({
    everyMs: STEP_MS,
    load: (signal) => get(path`/pipelines/${pipeline}`, null, { signal }),
    show({ run, findings }) {
      patch(about, aboutRun(run));
      const failing = run.sinks.filter((each) => each.error !== null).map((each) => `${each.name}: ${each.error}`);
      patch(failure, run.error !== null ? problemBox(run.error) : failing.length > 0 ? problemBox(failing.join('; ')) : null);
      sinks.update(run.sinks);
      if (run.lag !== null) {
        lagBox.hidden = false;
        if (lags.push(run.lag) > STEPS_MAX) lags.shift();
        lag.update({ startMs: Date.now() - lags.length * STEP_MS, stepMs: STEP_MS, series: { lag: lags } });
      }
      // Findings come at the end of a run: they are drawn when they change.
      const text = JSON.stringify(findings);
      if (text === shown) return;
      shown = text;
      found.replaceChildren(...(findings === null ? [] : findingSections(findings)));
    },
  });
}

function aboutRun(run) {
  return facts([
    ['State', stateBadge(run.state)],
    ['Reads', h('bdi', null, visible(run.sources.join(', ')) || '–')],
    ['Trigger', visible(run.trigger)],
    ['Bad rows', count(run.bad_rows)],
    ['Rules broken', rulesBroken(run) || '–'],
    ['Shared reads', run.reads.map(readWords).join('; ') || '–'],
    ['Started', moment(run.started_ms)],
    ['Last seen', moment(run.updated_ms)],
    ['Process', `${run.pid} on ${visible(run.host)}`],
    ['Spark', h('code', null, visible(run.master))],
    ['File', h('code', null, visible(run.file))],
  ]);
}

function stateWords(sink) {
  return sink.state_rows === null ? '–' : `${plural(sink.state_rows, 'row')}, ${bytes(sink.state_bytes)}`;
}

function batchWords(sink) {
  return sink.batch === null ? '–' : [`number ${count(sink.batch)}`, h('span', { class: 'below' }, duration(sink.batch_ms))];
}

function watermark(sink) {
  const milliseconds = Date.parse(sink.watermark ?? '');
  return Number.isNaN(milliseconds) ? visible(sink.watermark ?? '–') : moment(milliseconds);
}

function readWords(read) {
  const times = read.sinks.length;
  const together = `${count(read.rows)} rows (${bytes(read.bytes)})`;
  const apart = `${count(read.rows * times)} (${bytes(read.bytes * times)})`;
  return `${visible(read.source)} once for ${visible(read.sinks.join(', '))}: ${together} instead of ${apart}`;
}

function rulesBroken(run) {
  const found = {};
  for (const sink of run.sinks) for (const [name, rows] of Object.entries(sink.rules_broken)) found[name] = Math.max(rows, found[name] ?? 0);
  return Object.entries(found).map(([name, rows]) => `${visible(name)}: ${count(rows)}`).join(', ');
}

function target(sink) {
  if (sink.kind === 'topic' || (sink.kind === 'bad rows' && sink.target)) return [badge(sink.kind), ' ', topicLink(sink.target)];
  return [badge(sink.kind), ' ', h('bdi', { class: 'name' }, visible(sink.target))];
}

function rowsOut(sink) {
  return BAD_KINDS.includes(sink.kind) && sink.rows_out ? badge(count(sink.rows_out), 'warn') : count(sink.rows_out);
}

function findingSections(findings) {
  const bursts = table({
    caption: 'Bursts of errors',
    key: (each) => `${each.service} ${each.start_ms}`,
    empty: 'No bursts.',
    columns: [
      { title: 'Service', cell: (each) => visible(each.service), sort: (each) => each.service },
      { title: 'From', cell: (each) => moment(each.start_ms), sort: (each) => each.start_ms },
      { title: 'For', kind: 'number', cell: (each) => plural(each.minutes, 'minute'), sort: (each) => each.minutes },
      { title: 'Errors', kind: 'number', cell: (each) => count(each.errors), sort: (each) => each.errors },
      { title: 'Such as', kind: 'wide', cell: (each) => h('bdi', null, visible(each.example)) },
    ],
  });
  const errors = table({
    caption: 'Most frequent errors',
    key: (each) => `${each.service} ${each.template}`,
    empty: 'No errors.',
    columns: [
      { title: 'Errors', kind: 'number', cell: (each) => count(each.count), sort: (each) => each.count },
      { title: 'Service', cell: (each) => visible(each.service), sort: (each) => each.service },
      { title: 'Error', kind: 'wide', cell: (each) => h('bdi', null, visible(each.template)) },
    ],
  });
  bursts.update(findings.bursts);
  errors.update(findings.top_errors);
  return [
    section(
      'Findings',
      null,
      facts([['Log lines', count(findings.lines)], ...Object.entries(findings.levels).map(([level, lines]) => [visible(level), count(lines)])]),
      barChart({
        label: `Errors per ${duration(findings.step_ms)}`,
        start: findings.start_ms,
        step: findings.step_ms,
        series: findings.errors.map(({ service, counts }) => ({ name: visible(service), values: counts })),
      }),
    ),
    section('Bursts', null, bursts.element),
    section('Most frequent errors', null, errors.element),
  ];
}
