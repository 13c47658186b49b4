/** Numbers, sizes, times and texts as people read them. */

const NUMBER = new Intl.NumberFormat('en-US');
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
// What a reader would not see, or what would show the text around it in another order.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** 1234567 as 1,234,567; what is not known as a dash. */
export function count(value) {
  return value === null || value === undefined ? '–' : NUMBER.format(value);
}

/** "1 message", "2 messages". */
export function plural(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`;
}

export function bytes(value) {
  if (value === null || value === undefined) return '–';
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${UNITS[unit]}`;
}

export function percent(share) {
  return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

/** How long: "3 d 4 h", "12 min", "8 s", "350 ms". */
export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return '–';
  const seconds = Math.abs(milliseconds) / 1000;
  if (seconds < 1) return `${Math.round(Math.abs(milliseconds))} ms`;
  const parts = [
    ['d', Math.floor(seconds / 86400)],
    ['h', Math.floor(seconds / 3600) % 24],
    ['min', Math.floor(seconds / 60) % 60],
    ['s', Math.floor(seconds) % 60],
  ];
  const first = parts.findIndex(([, value]) => value > 0);
  return parts
    .slice(first, first + 2)
    .filter(([, value]) => value > 0)
    .map(([unit, value]) => `${value} ${unit}`)
    .join(' ');
}

/** The time on the user's clock: 2026-01-31 09:15:02. */
export function time(milliseconds, { withMilliseconds = false } = {}) {
  if (milliseconds === null || milliseconds === undefined) return '–';
  const date = new Date(milliseconds);
  if (Number.isNaN(date.getTime())) return `${milliseconds} ms`;
  const two = (value) => String(value).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const fraction = withMilliseconds ? `.${String(date.getMilliseconds()).padStart(3, '0')}` : '';
  return `${day} ${clock(date)}${fraction}`;
}

export function clock(date) {
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((each) => String(each).padStart(2, '0')).join(':');
}

/** "12 s ago", "in 3 h". */
export function relative(milliseconds, now = Date.now()) {
  if (milliseconds === null || milliseconds === undefined) return '–';
  const difference = milliseconds - now;
  if (Math.abs(difference) < 1000) return 'now';
  return difference < 0 ? `${duration(-difference)} ago` : `in ${duration(difference)}`;
}

/** A text in which every character can be seen: a control character is shown as \u0007. */
export function visible(text) {
  return text.replace(INVISIBLE, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** The beginning of a text on one line. */
export function oneLine(text, charactersMax = 200) {
  const line = visible(text.slice(0, charactersMax * 2)).replace(/\s+/g, ' ');
  return line.length > charactersMax ? `${line.slice(0, charactersMax)}…` : line;
}
