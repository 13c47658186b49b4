/** What a page shows stays fresh: it is read again after a change, at an interval, and when the broker is back. */

import { get, Problem } from './api.js';

const EVENTS = '/api/v1/events';
const SETTLE_MS = 150; // events come in bursts: read once for all of them
const PROBE_MS = 1500;
const STREAM_RETRY_MS = 10_000;

/** @typedef {{isUp: boolean, since: ?Date, who: string}} Connection */
/** @type {Connection} */
let connection = { isUp: true, since: null, who: '' };
const watches = new Set();
const observers = new Set();
let stream = null;
let streamTimer = null;
let probing = null;

/** Call with the state of the connection, now and whenever it changes. */
export function observeConnection(observer) {
  observers.add(observer);
  observer(connection);
}

/**
 * Read something now and again, and show it.
 * @param {{load: (signal: AbortSignal) => Promise<*>, show: (data: *) => void, fail?: (problem: Problem) => void,
 *   everyMs?: number, kinds?: string[], name?: string}} what `kinds` and `name`: of the events after which it is read
 * @returns {{refresh: () => void, stop: () => void}}
 */
export function watch({ load, show, fail, everyMs = 5000, kinds = [], name = null }) {
  let timer = null;
  let running = null;
  let isAgain = false;
  let isStopped = false;

  const self = {
    refresh() {
      if (isStopped) return;
      clearTimeout(timer);
      if (running) isAgain = true;
      else read();
    },
    stop() {
      isStopped = true;
      clearTimeout(timer);
      running?.abort();
      watches.delete(self);
      if (watches.size === 0) closeStream();
    },
    onEvent(event) {
      const isMine = event.change === 'connected' || kinds.includes(event.kind);
      if (!isMine || (name !== null && event.name !== null && event.name !== name)) return;
      clearTimeout(timer);
      timer = setTimeout(self.refresh, SETTLE_MS);
    },
  };

  async function read() {
    running = new AbortController();
    isAgain = false;
    try {
      const data = await load(running.signal);
      if (isStopped) return;
      show(data);
    } catch (error) {
      if (isStopped) return;
      if (!(error instanceof Problem)) throw error;
      // Without a broker the page keeps what it has, and says since when.
      if (!error.isUnavailable || !(await isGone(error))) fail?.(error);
    } finally {
      running = null;
      if (!isStopped && isAgain) read();
      else if (!isStopped) plan();
    }
  }

  function plan() {
    clearTimeout(timer);
    // A hidden page reads nothing, and one without a broker waits for the probe.
    if (!connection.isUp) return;
    timer = setTimeout(() => { if (!document.hidden) self.refresh(); }, everyMs);
  }

  watches.add(self);
  openStream();
  read();
  return self;
}

/** Something was changed here: read everything that is shown again. */
export function refreshAll() {
  for (const each of [...watches]) each.refresh();
}

function setConnection(next) {
  connection = next;
  for (const each of observers) each(connection);
}

/** A request found no broker. Whether none answers at all: it may have been that request alone, so ask once more. */
async function isGone(problem) {
  if (!connection.isUp) return true;
  probing ??= ask().then((second) => {
    probing = null;
    if (second === null) return false;
    setConnection({ isUp: false, since: new Date(), who: ofWhom(problem) });
    waitUntilUp();
    return true;
  });
  return probing;
}

async function waitUntilUp() {
  for (let problem = true; problem !== null; problem = await ask()) {
    if (problem !== true) setConnection({ ...connection, who: ofWhom(problem) });
    await new Promise((resolve) => { setTimeout(resolve, PROBE_MS); });
  }
  setConnection({ isUp: true, since: null, who: '' });
  refreshAll();
}

/** Null if a broker answers, whatever it answers; else the problem. */
async function ask() {
  try {
    await get('/cluster/name');
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.isUnavailable || error.status === 503) return error;
  }
  return null;
}

function ofWhom(problem) {
  return problem.status === 0 ? 'The server of the console' : 'The broker';
}

function openStream() {
  clearTimeout(streamTimer);
  if (stream !== null || document.hidden || watches.size === 0) return;
  stream = new EventSource(EVENTS);
  for (const kind of ['cluster', 'topic', 'group', 'broker']) {
    stream.addEventListener(kind, (message) => onEvent(JSON.parse(message.data)));
  }
  stream.addEventListener('error', () => {
    // A browser connects again by itself unless the server has refused the stream. The polls go on all the same.
    if (stream?.readyState !== EventSource.CLOSED) return;
    closeStream();
    streamTimer = setTimeout(openStream, STREAM_RETRY_MS);
  });
}

function closeStream() {
  clearTimeout(streamTimer);
  stream?.close();
  stream = null;
}

let isFirstOfStream = false;
function onEvent(event) {
  if (event.change === 'unavailable') {
    isGone(new Problem({ status: 503, title: 'Unavailable', detail: event.detail ?? '' }));
    return;
  }
  if (event.change === 'connected' && !isFirstOfStream) {
    isFirstOfStream = true; // What the page shows was just read.
    return;
  }
  for (const each of watches) each.onEvent(event);
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) {
    closeStream();
    return;
  }
  openStream();
  refreshAll();
});
