/** Requests to the REST API: problems as errors, unchanged answers as the same object. */

import { withQuery } from './dom.js';

/** An event of the document: the session has ended. */
export const LOGIN_NEEDED = 'zhumq-login-needed';

const PREFIX = '/api/v1';
/** Where the schema registry is, with the paths of Confluent's. */
export const REGISTRY = '/registry';
const KEPT_MAX = 200; // answers that are kept to compare
const SECONDS_MAX = 45; // the server gives up after 40

/** What the brokers ask of callers, and who this browser is: {authentication, user, csrf_token}. */
let session = { authentication: 'none', user: null, csrf_token: null };
/** By URL, the last answer with its ETag; the one that was used longest ago is the first. */
const kept = new Map();

/** Why a request failed, in words for people. */
export class Problem extends Error {
  constructor({ status, title, detail, advice, code }) {
    super(advice ? `${detail}: ${advice}` : detail);
    this.status = status;
    this.title = title;
    this.code = code ?? null;
  }

  /** No broker answers, or this server does not: it may later. */
  get isUnavailable() {
    return this.status === 0 || this.status === 504 || (this.status === 503 && this.title !== 'Too busy');
  }
}

/**
 * The answer to a GET. The same object as before if nothing has changed.
 * @param {{signal?: AbortSignal, isKept?: boolean, prefix?: string}} options `isKept`: false for pages of messages, which are large
 */
export async function get(address, query, { signal, isKept = true, prefix = PREFIX } = {}) {
  const url = withQuery(prefix + address, query);
  const before = kept.get(url);
  const answer = await send(url, { headers: before ? { 'If-None-Match': before.tag } : {}, signal });
  if (answer.status === 304 && before) {
    keep(url, before);
    return before.data;
  }
  const data = await answer.json();
  const tag = answer.headers.get('ETag');
  if (tag && isKept) keep(url, { tag, data });
  return data;
}

/** Ask for a change. */
export async function change(method, address, body, query, { prefix = PREFIX } = {}) {
  const headers = {};
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (session.csrf_token) headers['X-CSRF-Token'] = session.csrf_token;
  const answer = await send(withQuery(prefix + address, query), {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return answer.status === 204 ? null : answer.json();
}

export async function readSession() {
  session = await get('/session');
  return session;
}

export async function logIn(credentials) {
  session = await change('POST', '/session', credentials);
  kept.clear();
  return session;
}

export async function logOut() {
  await change('DELETE', '/session');
  kept.clear();
  return readSession();
}

/** Whether the user must log in before anything can be shown. */
export function needsLogin() {
  return session.authentication !== 'none' && session.csrf_token === null;
}

export function currentSession() {
  return session;
}

async function send(url, options) {
  const deadline = AbortSignal.timeout(SECONDS_MAX * 1000);
  const signal = options.signal ? AbortSignal.any([options.signal, deadline]) : deadline;
  let answer;
  try {
    answer = await fetch(url, { ...options, signal });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem({ status: 0, title: 'Unavailable', detail: 'the server of the console does not answer' });
  }
  if (answer.ok || answer.status === 304) return answer;
  if (answer.status === 401 && !url.endsWith('/session')) {
    session = { ...session, user: null, csrf_token: null };
    document.dispatchEvent(new Event(LOGIN_NEEDED));
  }
  let problem = {};
  try {
    problem = await answer.json();
  } catch {
    // Something between the browser and the server has answered.
  }
  // The registry's errors have a message and a number.
  const detail = problem.message ?? `the server answered ${answer.status}`;
  throw new Problem({ title: '', detail, ...problem, status: answer.status });
}

function keep(url, answer) {
  kept.delete(url);
  kept.set(url, answer);
  if (kept.size > KEPT_MAX) kept.delete(kept.keys().next().value);
}
