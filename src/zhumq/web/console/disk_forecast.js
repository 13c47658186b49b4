/** When a disk would be full, if it went on as in the last hours. */

import { slope } from './trend.js';

export const FORECAST_HOURS = 6;
const POINTS_MIN = 6; // fewer say nothing
const SHARE_MIN = 0.002; // of the disk: less than this is no change
const DAY_MS = 86_400_000;
const DAYS_MAX = 365; // further on nothing can be said

/**
 * @param {(number|null)[]} used bytes of the disk, sampled in equal steps; null where they are not known
 * @param {number} stepMs
 * @param {number} totalBytes
 * @returns {{kind: 'unknown'|'steady'|'falling'|'growing', perDay: number, fullInMs: ?number}}
 */
export function diskForecast(used, stepMs, totalBytes) {
  const known = used.map((value, step) => ({ value, seconds: (step * stepMs) / 1000 })).filter(({ value }) => value !== null);
  if (known.length < POINTS_MIN) return { kind: 'unknown', perDay: 0, fullInMs: null };
  const perSecond = slope(known);
  const perDay = (perSecond * DAY_MS) / 1000;
  const change = perSecond * (known.at(-1).seconds - known[0].seconds);
  if (Math.abs(change) < totalBytes * SHARE_MIN) return { kind: 'steady', perDay, fullInMs: null };
  if (change < 0) return { kind: 'falling', perDay, fullInMs: null };
  const fullInMs = (Math.max(totalBytes - known.at(-1).value, 0) / perSecond) * 1000;
  return fullInMs > DAYS_MAX * DAY_MS ? { kind: 'steady', perDay, fullInMs: null } : { kind: 'growing', perDay, fullInMs };
}
