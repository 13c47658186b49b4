/** Where the lag of a group is going: it grows, falls or stays, and when it would be gone. */

const POINTS_MIN = 4; // fewer say nothing
const SHARE_MIN = 0.05; // of the lag: less than this is no change
const MESSAGES_MIN = 1;

/**
 * The trend of lags that were sampled in equal steps; null where one is not known.
 * @param {(number|null)[]} lags
 * @param {number} stepMs
 * @returns {{kind: 'unknown'|'none'|'steady'|'growing'|'falling', perSecond: number, catchUpMs: ?number}}
 */
export function trendOf(lags, stepMs) {
  const known = lags.map((value, step) => ({ value, seconds: (step * stepMs) / 1000 })).filter(({ value }) => value !== null);
  const last = known.at(-1)?.value ?? null;
  if (last === 0) return { kind: 'none', perSecond: 0, catchUpMs: 0 };
  if (known.length < POINTS_MIN) return { kind: 'unknown', perSecond: 0, catchUpMs: null };
  const perSecond = slope(known);
  const change = Math.abs(perSecond) * (known.at(-1).seconds - known[0].seconds);
  const mean = known.reduce((sum, { value }) => sum + value, 0) / known.length;
  if (change < Math.max(MESSAGES_MIN, mean * SHARE_MIN)) return { kind: 'steady', perSecond, catchUpMs: null };
  if (perSecond > 0) return { kind: 'growing', perSecond, catchUpMs: null };
  return { kind: 'falling', perSecond, catchUpMs: (last / -perSecond) * 1000 };
}

/**
 * The slope of the line that is nearest to all points.
 * @param {{seconds: number, value: number}[]} points
 */
export function slope(points) {
  const mean = (values) => values.reduce((sum, each) => sum + each, 0) / values.length;
  const seconds = mean(points.map((each) => each.seconds));
  const value = mean(points.map((each) => each.value));
  const above = points.reduce((sum, each) => sum + (each.seconds - seconds) * (each.value - value), 0);
  const below = points.reduce((sum, each) => sum + (each.seconds - seconds) ** 2, 0);
  return below === 0 ? 0 : above / below;
}
