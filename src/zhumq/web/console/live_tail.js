/** The messages of a topic as they come. */

import { get, Problem } from './api.js';
import { path } from './dom.js';

const WAIT_MS = 10_000;
const PAUSE_MS = 1000; // after an answer that came at once

/**
 * Reads until the signal is aborted: the newest messages first, then those that come. Throws a Problem that waiting does not end.
 * @param {string} topic
 * @param {Object} query of the first request
 * @param {{signal: AbortSignal, onMessages: (items: Object[], isFirst: boolean) => void, onWaiting: () => void}} what
 *   `onMessages`: newest first, also if there are none; `onWaiting`: the broker does not answer for now
 */
export async function tailMessages(topic, query, { signal, onMessages, onWaiting }) {
  let asked = query;
  while (!signal.aborted) {
    const begun = performance.now();
    try {
      const found = await get(path`/topics/${topic}/messages`, asked, { signal, isKept: false });
      if (signal.aborted) return;
      onMessages(found.items.reverse(), asked === query);
      asked = { ...query, last: null, after: found.next, limit: '500', wait_ms: WAIT_MS };
      // Too many readers wait already, or a message comes every moment: not more often than a reader can see.
      if (performance.now() - begun < PAUSE_MS) await pause(PAUSE_MS, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Problem) || !(error.isUnavailable || error.status === 503)) throw error;
      onWaiting();
      await pause(PAUSE_MS * 2, signal);
    }
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    setTimeout(resolve, milliseconds);
    signal.addEventListener('abort', resolve, { once: true });
  });
}
