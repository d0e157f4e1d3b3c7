// SPDX-License-Identifier: Apache-2.0
/*
 * The javascript runner: takes one program from the engine, and has node run it
 * as its main program.
 *
 * Theory of operation
 * -------------------
 * A cell starts `node -r /usr/lib/hutch/runner.cjs /run/main` in its home
 * directory. Node loads this file before its main program, which does not exist
 * yet. Descriptor WIRE_CHANNEL_FD_NODE is a socket to the engine (frames: see
 * src/sandbox/wire.h).
 *
 * In a cell that is parked, it is a socket to the supervisor, and the standard streams
 * are /dev/null, until there is a request: then an addon puts the descriptors of the
 * request in their places. Up to there node must not have looked at its streams.
 *
 * A session begins with a frame of its own, and stays in this file: see Session.
 *
 * 1. Wait for the request.
 * 2. Find out what kind of program it is. What compiles as CommonJS is CommonJS,
 *    with all that such a program may do; what compiles only as an ES module
 *    (import, export, await at the top) is one, and finds require and its kin as
 *    globals. Of TypeScript the types are stripped, where this node can.
 * 3. Write it to a file in the home directory, so that its own imports, __dirname
 *    and workers find what they look for there, and make the link that node
 *    follows to its main program.
 * 4. Leave the rest to node. Nothing of this file is on the stack while the
 *    program runs, and the program ends as it would without us: rejections,
 *    exit codes, timers, traces. Listeners on the process tell the engine the
 *    value and the error.
 *
 * The one thing that is changed in a program is the statement in last place: if
 * it is an expression, its value is assigned to a global whose setter is ours.
 * Where that would show in the report of an error, it is taken out again.
 *
 * What we tell the engine is a claim, and losing it must never change how the
 * program ends. The channel is no secret of ours. A program that finds it can lie
 * about its own value and its own error, nothing else.
 *
 * Node 18 and later.
 */
'use strict';

const fs = require('node:fs');
const Module = require('node:module');
const os = require('node:os');
const path = require('node:path');
const { inspect, types } = require('node:util');
const vm = require('node:vm');
const { getEnvironmentData, isMainThread, setEnvironmentData } = require('node:worker_threads');

// -- src/sandbox/wire.h; a test compares the two --------------------------------

const WIRE_CHANNEL_FD_NODE = 15;
const WIRE_ENV = 1;
const WIRE_RUN = 2;
const WIRE_SESSION = 5;
const WIRE_STDIN = 6;
const WIRE_VALUE = 16;
const WIRE_ERROR = 17;
const WIRE_DONE = 19;
const WIRE_RUN_AFTER_INTERRUPT = 2;
const WIRE_ERROR_COMPILE = 1;
const WIRE_ERROR_IMPORT = 2;
const WIRE_STDOUT_PIPE = '/run/.stdout.';
const WIRE_STDERR_PIPE = '/run/.stderr.';
const WIRE_MAX_RUN = 1 << 20;
const WIRE_MAX_ENV = 100 * (255 + 1 + 32768 + 1);
const WIRE_MAX_STDIN = 16 << 20;
const WIRE_MAX_VALUE = 1 << 20;
const WIRE_MAX_ERROR = 64 << 10;

// The largest payload of each frame that the engine sends.
const MAX_PAYLOAD = {
  [WIRE_ENV]: WIRE_MAX_ENV,
  [WIRE_RUN]: WIRE_MAX_RUN,
  [WIRE_SESSION]: 4096,
  [WIRE_STDIN]: WIRE_MAX_STDIN,
};

// -- our own ----------------------------------------------------------------------

// The program's file in the home directory, without its ending.
const PROGRAM_NAME = '.main';

// The global that the last expression's value is assigned to.
const VALUE_NAME = 'valueOfLastExpression';

// What a CommonJS program has and an ES module has not.
const COMMONJS_NAMES = ['exports', 'require', 'module', '__filename', '__dirname'];

// Exit status when no request came, as of every failure of hutch itself.
const EXIT_NO_REQUEST = 125;

// What is handed to worker threads, of an ES module: its file.
const WORKER_DATA = 'hutch.module';

const CUT_MARK = Buffer.from(' ... [cut]');
const MAX_TYPE_NAME = 1024;

// What acorn and the compiler count as the end of a line.
const LINE_BREAK = /\r\n|[\n\r\u2028\u2029]/;

// Codes of node's errors that say that something to import is not there.
const IMPORT_CODES = [
  'MODULE_NOT_FOUND',
  'ERR_MODULE_NOT_FOUND',
  'ERR_PACKAGE_PATH_NOT_EXPORTED',
  'ERR_UNKNOWN_BUILTIN_MODULE',
  'ERR_UNSUPPORTED_DIR_IMPORT',
  'ERR_UNSUPPORTED_ESM_URL_SCHEME',
];

// -- the channel --------------------------------------------------------------------

/*
 * The socket to the engine. The program may close it and open a file under the same
 * number, so the socket is known by its identity. Node has made it close-on-exec,
 * as it does with what it inherits up to descriptor 15.
 */
class Channel {
  #fd;
  #socket;
  #execId = 0;

  constructor(fd) {
    this.#fd = fd;
    this.#socket = this.#identify();
  }

  #identify() {
    // Not as plain numbers: up to node 20 realpath, and so the search for the main program,
    // looks at what the last such call has left behind, and stops at a socket.
    const { dev, ino } = fs.fstatSync(this.#fd, { bigint: true });
    return `${dev}:${ino}`;
  }

  #receiveExactly(count, data = new Uint8Array(count), begin = 0) {
    for (let at = begin; at < count; ) {
      const piece = fs.readSync(this.#fd, data, at, count - at, null);
      if (piece === 0) {
        throw new Error('end of the channel');
      }
      at += piece;
    }
    return data;
  }

  // The number of the exec that the last frame belongs to.
  get execId() {
    return this.#execId;
  }

  // The next frame, as its type, payload and flags.
  receive() {
    return this.#receivePayload(this.#receiveExactly(12));
  }

  // The same, once there is one; until then the loop goes on, and is kept.
  receiveLater(callback) {
    const header = new Uint8Array(12);
    fs.read(this.#fd, header, 0, 12, null, (error, count) => {
      if (error?.code === 'EAGAIN' || error?.code === 'EINTR') {
        this.receiveLater(callback);
      } else {
        callback(error || count === 0 ? null : this.#rest(header, count));
      }
    });
  }

  #rest(header, count) {
    try {
      return this.#receivePayload(this.#receiveExactly(12, header, count));
    } catch {
      return [0]; // no frame
    }
  }

  #receivePayload({ buffer }) {
    const [length] = new Uint32Array(buffer, 0, 1);
    const [type, flags] = new Uint16Array(buffer, 4, 2);
    [this.#execId] = new Uint32Array(buffer, 8, 1);
    if (length > (MAX_PAYLOAD[type] ?? 0)) {
      throw new Error('no frame of a request');
    }
    return [type, Buffer.from(this.#receiveExactly(length).buffer), flags];
  }

  // Sends a frame, and gives up quietly when the engine or the socket is gone.
  send(type, payload, flags = 0) {
    try {
      if (this.#identify() !== this.#socket) {
        return;
      }
      const length = words(payload.length);
      const kind = new Uint8Array(new Uint16Array([type, flags]).buffer);
      const frame = Buffer.concat([length, kind, words(this.#execId), payload]);
      for (let at = 0; at < frame.length; ) {
        at += fs.writeSync(this.#fd, frame, at);
      }
    } catch {
      // the engine knows the wait status without us
    }
  }
}

function words(...numbers) {
  return new Uint8Array(new Uint32Array(numbers).buffer);
}

// UTF-8 of a text in at most limit bytes, with a mark where it was cut.
function bounded(text, limit) {
  const data = Buffer.from(text.slice(0, limit + 1));
  if (data.length <= limit) {
    return data;
  }
  let end = limit - CUT_MARK.length;
  while ((data[end] & 0xc0) === 0x80) {
    end--;
  }
  return Buffer.concat([data.subarray(0, end), CUT_MARK]);
}

// -- the request ----------------------------------------------------------------------

// Waits for the request, applies its environment, gives its code; null begins a session.
function receiveRequest(channel) {
  let [type, payload] = channel.receive();
  if (type === WIRE_SESSION) {
    return null;
  }
  if (type === WIRE_ENV) {
    Object.assign(process.env, variables(payload));
    [type, payload] = channel.receive();
  }
  if (type !== WIRE_RUN) {
    throw new Error('no code');
  }
  return payload.toString();
}

function variables(payload) {
  const entries = payload.toString().split('\0').slice(0, -1);
  return Object.fromEntries(
    entries.map((entry) => {
      const equals = entry.indexOf('=');
      return [entry.slice(0, equals), entry.slice(equals + 1)];
    }),
  );
}

function giveUp() {
  fs.writeSync(2, 'hutch: the javascript runner got no request\n');
  process.reallyExit(EXIT_NO_REQUEST);
}

// -- what kind of program it is ---------------------------------------------------------

/*
 * Reads a program's text. Node's own compiler says whether it is CommonJS. Acorn
 * knows only what its release knew of the language, so it is asked for no more than
 * the compiler does not tell: whether the text is an ES module, and its statements.
 */
function readProgram(text) {
  const failure = commonJsFailure(text);
  if (!failure) {
    const { body } = parse(text, { sourceType: 'script', allowReturnOutsideFunction: true });
    if (!text.includes('await') || !mentionsAwait(body)) {
      return { text, ending: '.cjs', body };
    }
    // `await (f())` is also a call of a function named await; nobody means that.
  }
  const { body, error } = parse(text, { sourceType: 'module' });
  const isModule = body || (failure && needsModule(failure));
  return { text, ending: isModule ? '.mjs' : '.cjs', body, error: failure && error };
}

function commonJsFailure(text) {
  try {
    vm.compileFunction(text, COMMONJS_NAMES);
    return null;
  } catch (error) {
    return error;
  }
}

// Whether the compiler stopped at what only an ES module may have.
function needsModule({ message }) {
  return /outside a module|Unexpected token 'export'|bodies of modules/.test(message);
}

let acorn;

// The statements of a program, or the error.
function parse(text, options) {
  try {
    const all = { ecmaVersion: 'latest', allowHashBang: true, locations: true, ...options };
    return { body: acorn.parse(text, all).body };
  } catch (error) {
    return { error }; // a stack overflow too, of a program that nests deeply
  }
}

function mentionsAwait(node) {
  if (node === null || typeof node !== 'object') {
    return false;
  }
  const isAwait = node.type === 'Identifier' && node.name === 'await';
  return isAwait || Object.values(node).some(mentionsAwait);
}

// -- TypeScript ---------------------------------------------------------------------------

// A program that is not run: why, and in which line; shown says it on stderr.
class Refusal extends Error {
  constructor(message, line, shown) {
    super(message);
    Object.assign(this, { line, shown });
  }
}

/*
 * What is no JavaScript may be TypeScript. Stripping the types leaves every line and
 * column where it was. What has to be rewritten instead (enum and its kin) comes with
 * a source map, by which node translates its traces.
 */
function readTypeScript(program) {
  const { text, error } = program;
  if (!Module.stripTypeScriptTypes) {
    if (looksLikeTypeScript(text, error.pos)) {
      throw missingStripper(text, error.loc.line);
    }
    return program;
  }
  try {
    return readProgram(stripTypes(text, { mode: 'strip' }));
  } catch (failure) {
    const rewritten = rewriteTypes(text);
    if (!rewritten && looksLikeTypeScript(text, error.pos)) {
      throw typeScriptError(failure);
    }
    return rewritten ?? program;
  }
}

// Without node's warning that this is experimental.
function stripTypes(text, options) {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    return Module.stripTypeScriptTypes(text, options);
  } finally {
    process.emitWarning = emitWarning;
  }
}

function rewriteTypes(text) {
  try {
    const answer = stripTypes(text, { mode: 'transform', sourceMap: true });
    const [, code, data] = /^([^]*)\n\/\/# sourceMappingURL=data:[^,]*,(.*)\s*$/.exec(answer);
    const map = { ...JSON.parse(Buffer.from(data, 'base64')), sources: [`${PROGRAM_NAME}.ts`] };
    return { ...readProgram(code), map: { ...map, sourcesContent: [text] } };
  } catch {
    return null; // this node cannot, or the program is broken
  }
}

// What TypeScript goes on with where JavaScript ends, and what it has before that place.
const TYPE =
  '[A-Z([{]|\\w+[[<]|(?:string|number|boolean|bigint|symbol|object|any|unknown|void|never|' +
  'null|undefined|readonly|keyof|typeof)\\b';
const TYPESCRIPT_AHEAD = [
  `:[ \\t]*(?:${TYPE})`,
  '[?!]\\s*[:.)]',
  '(?:as|satisfies|implements|private|public|protected|readonly)\\s',
  '(?:interface|enum|type)\\s+\\w',
  '<[\\w\\s,]+(?:extends[^>]*)?>\\s*\\(',
];
const TYPESCRIPT_BEHIND =
  /\b(?:interface|type|namespace|declare|abstract|private|public|protected|readonly|override)\s+$/;

function looksLikeTypeScript(text, position) {
  const before = text.slice(0, position);
  // A colon behind a string belongs to an object.
  const object = text[position] === ':' && /["'`]\s*$/.test(before);
  const ahead = new RegExp(`^(?:${TYPESCRIPT_AHEAD.join('|')})`).test(text.slice(position));
  return (ahead && !object) || TYPESCRIPT_BEHIND.test(before);
}

function missingStripper(text, line) {
  const message =
    `this looks like TypeScript, and node ${process.version} cannot strip types (node 22.13 ` +
    'and later can); write JavaScript instead';
  const source = text.split(LINE_BREAK)[line - 1];
  return new Refusal(message, line, `:${line}\n${source}\n\nSyntaxError: ${message}`);
}

// Node's own report begins with the place, and ends with its own frames.
function typeScriptError(failure) {
  const [place, line] = /^:(\d+)\n[^]*?\n\n/.exec(failure.stack) ?? [':0\n', 0];
  return new Refusal(failure.message, Number(line), `${place}SyntaxError: ${failure.message}`);
}

// -- the value ----------------------------------------------------------------------------

/*
 * Has the value of an expression in last place assigned to our global. The words for
 * it go behind the statement before, unless both are on one line: so the expression's
 * own line and columns stay as they are. insertion says where the words are.
 */
function keepValue(program) {
  const { text, body, map } = program;
  const index = body.findLastIndex(({ type }) => type !== 'EmptyStatement');
  const last = body[index];
  if (last?.type !== 'ExpressionStatement') {
    return;
  }
  const before = body[index - 1];
  const apart = before !== undefined && before.loc.end.line < last.loc.start.line;
  const at = apart ? before.end : last.start;
  const { line, column } = apart ? before.loc.end : last.loc.start;
  const { type, end } = last.expression;
  const [open, close] = type === 'SequenceExpression' ? ['(', ')'] : ['', ''];
  const words = `${apart ? ';' : ''}globalThis.${VALUE_NAME}=${open}`;

  program.text = text.slice(0, at) + words + text.slice(at, end) + close + text.slice(end);
  program.hasValue = true;
  if (!map) {
    program.insertion = { words, line, column, source: text.split(LINE_BREAK)[line - 1] };
  }
}

function textOf(value) {
  return value === undefined ? null : typeof value === 'string' ? value : shown(value);
}

// As node's own prompt does: two levels, a hundred elements, 10000 characters of a string.
function shown(value) {
  try {
    return inspect(value);
  } catch {
    // an object with ideas of its own
  }
  try {
    return inspect(value, { customInspect: false });
  } catch {
    return null;
  }
}

/*
 * The value as text. It is shown at once, because the program may go on to change it.
 * A promise stands for what it is fulfilled with by the end of the program; another is
 * left alone, for a handler of ours would hide that there is no other.
 */
class Value {
  #then = Promise.prototype.then;
  text = null;

  collect() {
    const set = (value) => {
      delete globalThis[VALUE_NAME];
      if (types.isPromise(value)) {
        process.once('beforeExit', () => this.#showPromise(value));
      } else {
        this.#show(value);
      }
    };
    Object.defineProperty(globalThis, VALUE_NAME, { configurable: true, set });
  }

  #showPromise(promise) {
    if (!/^[^{]*\{\s*<(?:pending|rejected)>/.test(inspect(promise))) {
      Reflect.apply(this.#then, promise, [this.#show]);
    }
  }

  #show = (value) => {
    this.text = textOf(value) ?? this.text;
  };
}

// -- errors -------------------------------------------------------------------------------

/*
 * What is said about the error that ends the program: a claim to the engine, and on
 * stderr what node says, without the words of keepValue.
 */
class Report {
  #channel;
  #program;

  constructor(channel, program) {
    this.#channel = channel;
    this.#program = program;
  }

  exiting = false;

  // Node is about to end the program for this error.
  fatal(error, origin) {
    const stack = isError(error) ? String(error.stack) : '';
    const { insertion } = this.#program;
    const place = this.#places().exec(stack);
    this.#claim(error, this.#flags(error, place), place);
    if (insertion && place) {
      error.stack = this.#mend(stack);
      this.#printInstead(error, origin, /^ +at .*/m.exec(error.stack)?.[0]);
    }
  }

  // An exec of a session has ended for this error.
  failed(error, compiling) {
    const stack = isError(error) ? String(error.stack) : '';
    const place = this.#places().exec(stack);
    const flags = compiling ? WIRE_ERROR_COMPILE : this.#flags(error, place);
    this.#claim(error, flags, place);
  }

  // What node would print of it.
  describe(error, text) {
    const end = `\n\nNode.js ${process.version}\n`;
    if (!isError(error)) {
      return `Uncaught:\n${inspect(error)}${end}`;
    }
    const body = this.mend(withoutOurFrames(inspect(error, { customInspect: false, depth: 5 })));
    const place = this.#places().exec(body);
    if (!place || /^\S*:\d+\n/.test(body)) {
      return `${body}${end}`;
    }
    const source = text.split(LINE_BREAK)[place[2] - 1] ?? '';
    const before = source.slice(0, Math.max(0, place[3] - 1)).replace(/\bthrow\s+$/, '');
    const mark = `${before.replace(/[^\t]/g, ' ')}^`;
    return `${place[1]}${place[2]}\n${source}\n${mark}\n\n${body}${end}`;
  }

  // A stack with the program's own columns.
  mend(stack) {
    return this.#program.insertion ? this.#mend(stack) : stack;
  }

  interrupted() {
    this.#send('Interrupted', 'the program was interrupted', 0, 0, 0);
  }

  // The program is not run.
  refused({ message, line, shown }) {
    this.#send('SyntaxError', message, line, 0, WIRE_ERROR_COMPILE);
    fs.writeSync(2, `${this.#program.file}${shown}\n`);
  }

  // The program's file could not be written.
  notStored(error) {
    this.#claim(error, 0, null);
    fs.writeSync(2, `the program cannot be stored: ${error.message}\n`);
  }

  #claim(error, flags, place) {
    const line = place ? Number(place[2]) : this.#lineWithoutPlace(error, flags);
    this.#send(typeName(error), messageOf(error), line, errorNumber(error), flags);
  }

  #send(type, message, line, errno, flags) {
    const name = bounded(type, MAX_TYPE_NAME);
    const text = bounded(message, WIRE_MAX_ERROR - 12 - name.length);
    const payload = Buffer.concat([words(line, name.length, errno), name, text]);
    this.#channel.send(WIRE_ERROR, payload, flags);
  }

  // Matches each place in the program that a stack names: FILE:LINE:COLUMN.
  #places() {
    const { dir, name } = path.parse(this.#program.file);
    const stem = path.join(dir, name).replace(/\W/g, '\\$&');
    return new RegExp(`(${stem}\\.(?:cjs|mjs|ts):)(\\d+)(?::(\\d+))?`, 'g');
  }

  #flags(error, place) {
    const message = messageOf(error);
    if (IMPORT_CODES.includes(error?.code) || /does not provide an export named/.test(message)) {
      return WIRE_ERROR_IMPORT;
    }
    // The place of one that was thrown is in a frame; the compiler names one ahead, or none.
    const isFrame = place && /^ +at /m.test(place.input.slice(0, place.index));
    const compiling = place ? !isFrame : this.#program.error;
    return error instanceof SyntaxError && compiling ? WIRE_ERROR_COMPILE : 0;
  }

  // Of a module that does not compile, or whose imports are not there, node names no line.
  #lineWithoutPlace(error, flags) {
    if (flags === WIRE_ERROR_COMPILE) {
      return this.#program.error.loc?.line ?? 0;
    }
    if (flags !== WIRE_ERROR_IMPORT) {
      return 0;
    }
    const folder = path.dirname(this.#program.file);
    const wanted = /'([^']+)'/.exec(error.message)?.[1];
    const names = ({ value }) => [`${value}/`, `${path.resolve(folder, value)}/`];
    const statement = this.#program.body?.find(
      ({ source }) => source && names(source).some((name) => name.startsWith(`${wanted}/`)),
    );
    return statement?.loc.start.line ?? 0;
  }

  // A stack with the program's own text and columns.
  #mend(stack) {
    const { words, line, column } = this.#program.insertion;
    return stack.replaceAll(words, '').replace(this.#places(), (place, file, at, to) => {
      const shifted = Number(at) === line && to > column + words.length;
      return shifted ? `${file}${at}:${to - words.length}` : place;
    });
  }

  /*
   * Where the error was thrown in the line that keepValue has changed, node would show
   * that line. So we print what node would, and end as it would.
   */
  #printInstead(error, origin, frame) {
    const { insertion, file, ending } = this.#program;
    const place = this.#places().exec(frame);
    if (Number(place?.[2]) !== insertion.line) {
      return;
    }
    let before = insertion.source.slice(0, place[3] - 1);
    if (origin === 'uncaughtException') {
      before = before.replace(/\bthrow\s+$/, ''); // where it was thrown, not where it was made
    }
    const head = `${ending === '.mjs' ? 'file://' : ''}${file}:${insertion.line}`;
    const source = `${insertion.source}\n${before.replace(/[^\t]/g, ' ')}^`;
    const body = inspect(error, { customInspect: false, depth: 5 });
    const text = `${head}\n${source}\n\n${body}\n\nNode.js ${process.version}\n`;
    const print = () => fs.writeSync(2, text);
    process.setUncaughtExceptionCaptureCallback(() => {
      if (this.exiting) {
        print();
      } else {
        process.once('exit', print);
      }
      process.exit(1);
    });
  }
}

function isError(error) {
  return types.isNativeError(error) || error instanceof Error;
}

function typeName(error) {
  const name = error?.constructor?.name;
  // Of no class of its own, an error may still have a name; node's errors have.
  return String((['Error', 'NodeError'].includes(name) ? error.name : name) ?? '');
}

function messageOf(error) {
  if (isError(error)) {
    return String(error.message);
  }
  return typeof error === 'object' || typeof error === 'function' ? inspect(error) : String(error);
}

// An error number of the system, also where node says only in words what was short.
function errorNumber(error) {
  const { EAGAIN, ENOMEM } = os.constants.errno;
  if (error instanceof RangeError && /allocation failed|could not allocate/i.test(error.message)) {
    return ENOMEM;
  }
  const known = {
    ERR_MEMORY_ALLOCATION_FAILED: ENOMEM,
    ERR_WORKER_OUT_OF_MEMORY: ENOMEM,
    ERR_WORKER_INIT_FAILED: EAGAIN,
  };
  const number = known[error?.code] ?? -error?.errno;
  return number > 0 && number < 1 << 30 ? number : 0;
}

// -- a parked cell ------------------------------------------------------------------------

/*
 * Of a cell with a request stdout is a pipe of the engine's. A look at that is all that
 * such a cell has to pay; otherwise the addon looks at what the channel is.
 */
function mayBeParked() {
  return fs.fstatSync(1, { bigint: true }).isCharacterDevice();
}

function loadAddon() {
  const addon = { exports: {} };
  process.dlopen(addon, path.join(__dirname, 'hutch_park.node'));
  return addon.exports;
}

function park() {
  const addon = loadAddon();
  rehearse(addon);
  addon.park();
}

// What programs do most, in either kind; each gives a value.
const REHEARSED_PROGRAMS = [
  `const { sep } = require('node:path')
class A { constructor(x) { this.x = x } }
async function f({ a, ...b }) { return [...[a], b?.c ?? 1] }
for (const x of [1, 'a']) { if (x === 1) f({ a: \`\${x}\` }); else new A(x) }
try { f({}) } catch (e) { throw e }
sep.length + 1`,
  `import fs from 'node:fs'
import * as path from 'node:path'
export const f = () => path.sep
const a = await Promise.resolve({ a: 1 })
typeof fs`,
];

/*
 * A run from its request to its end, before there is one: so what it takes of node, of
 * acorn and of this file is loaded and compiled. The programs lie beside the link to the
 * main program, and what they leave in node is seen by no other. TypeScript is left out:
 * node's reader of it would take 17 MB in every cell.
 */
function rehearse({ pipe, turn }) {
  const known = Object.keys(Module._pathCache);
  const { stdout, stderr } = Object.getOwnPropertyDescriptors(process);
  const stream = standIn(pipe());
  REHEARSED_PROGRAMS.forEach((text, index) => {
    rehearseProgram(text, `${process.argv[1]}.${index}`, pipe(), turn);
  });
  new console.Console(stream).log('a', 1, { b: [null] });
  stream.destroy();
  settle(turn);
  Object.defineProperties(process, { stdout, stderr });
  for (const request of Object.keys(Module._pathCache)) {
    if (!known.includes(request)) {
      delete Module._pathCache[request];
    }
  }
}

// Node looks at its streams here and there, and would keep what it finds.
function standIn(fd) {
  const { Socket } = require('node:net');
  const stream = new Socket({ fd, readable: false, writable: true });
  const property = { configurable: true, enumerable: true, get: () => stream };
  Object.defineProperties(process, { stdout: property, stderr: property });
  writeAtOnce();
  return stream;
}

function rehearseProgram(text, link, fd, turn) {
  const channel = new Channel(fd);
  const value = new Value();
  channel.send(WIRE_RUN, Buffer.from(text));
  const program = prepare(receiveRequest(channel), path.dirname(link));
  store(program, link);
  value.collect();
  if (program.ending === '.mjs') {
    provideCommonJs(program.file);
    import(link).catch(() => {});
    settle(turn);
    COMMONJS_NAMES.forEach((name) => delete globalThis[name]);
  } else {
    require(link);
  }
  delete globalThis[VALUE_NAME];
  new Report(channel, program).fatal(new Error(value.text), 'uncaughtException');
  fs.closeSync(fd);
  fs.unlinkSync(link);
  fs.unlinkSync(program.file);
}

// Lets node finish what is under way.
function settle(turn) {
  do {
    process._tickCallback();
  } while (turn());
}

// -- a session ----------------------------------------------------------------------------

/*
 * The execs of a session run one after the other as scripts of the main context, with
 * what a CommonJS program has as globals. What stays is what is in that context. Each exec
 * begins in a turn of node's loop and ends when the loop has nothing left to do: until the
 * next one all that keeps the loop is a read of the channel.
 *
 * exit, an error that nobody handles and SIGINT end an exec in the midst. Then its timers
 * are cancelled and what else keeps the loop is closed; children are let go. Listeners of
 * 'exit' are not called, for the process goes on. SIGINT reaches also a program that does
 * not come back to the loop, in its script and what it does behind an await; where it
 * does not come back from a timer or an event, only a kill helps. In the moment in which a
 * script ends node may lose a SIGINT, so whoever interrupts does it again, or, rarely, die of
 * it.
 */
class Session {
  #channel;
  #home;
  #output;
  #timers = new Map(); // and the exec that each belongs to
  #owner = null; // of the timer that is being called
  #exec = null;
  #count = 0;
  #inScript = false;
  #mayHaveLost = false; // node a SIGINT

  constructor(channel, home) {
    this.#channel = channel;
    this.#home = home;
    this.#output = new Output(() => this.#owner ?? this.#exec);
  }

  begin() {
    this.#output.watch();
    watchOutput();
    this.#watchTimers();
    this.#replaceExit();
    process.on('worker', (worker) => {
      if (this.#exec) {
        this.#exec.workers.push(worker);
      } else {
        worker.terminate(); // it is told of a turn later
      }
    });
    this.#listen({
      SIGINT: () => this.#signalled(),
      uncaughtException: (error) => this.#uncaught(error),
      beforeExit: this.#idle,
    });
    this.#wait();
  }

  // Listeners of ours stay when a program removes all.
  #listen(listeners) {
    for (const [name, listener] of Object.entries(listeners)) {
      process.on(name, listener);
    }
    process.on('removeListener', (name, listener) => {
      // In the script it is node that takes those of SIGINT away, and brings them back.
      const isNode = name === 'SIGINT' && this.#inScript;
      if (listeners[name] === listener && !isNode) {
        process.on(name, listener);
      }
    });
  }

  #wait() {
    this.#request = { env: {}, stdin: null };
    this.#receive();
  }

  #request;

  #receive() {
    try {
      this.#channel.receiveLater((frame) => this.#take(frame));
    } catch {
      REALLY_EXIT(EXIT_NO_REQUEST);
    }
  }

  #take(frame) {
    if (!frame) {
      REALLY_EXIT(EXIT_NO_REQUEST);
    }
    const [type, payload, flags] = frame;
    if (type === WIRE_ENV) {
      this.#request.env = variables(payload);
    } else if (type === WIRE_STDIN) {
      this.#request.stdin = payload;
    } else if (type === WIRE_RUN) {
      this.#mayHaveLost ||= (flags & WIRE_RUN_AFTER_INTERRUPT) !== 0;
      // Two turns later, when a SIGINT from before the request has been seen.
      setImmediate(() => setImmediate(() => this.#start(payload.toString())));
      return;
    } else {
      REALLY_EXIT(EXIT_NO_REQUEST);
    }
    this.#receive();
  }

  // -- from its beginning to its end

  #start(text) {
    const { env, stdin } = this.#request;
    const file = path.join(this.#home, `${PROGRAM_NAME}.${++this.#count}.cjs`);
    const known = new Set(process._getActiveHandles());
    const old = Object.keys(env).map((name) => [name, process.env[name]]);
    const exec = { text, file, known, old, workers: [], value: null, ended: false };
    exec.report = new Report(this.#channel, exec);
    this.#exec = exec;
    process.exitCode = undefined;
    Object.assign(process.env, env);
    try {
      provideInput(stdin);
      this.#output.turnTo(exec, this.#channel.execId, new Set(this.#timers.values()));
      if (mendOutput()) {
        this.#output.watch();
      }
    } catch (error) {
      this.#fail(error, false);
      return;
    }
    if (this.#mayHaveLost) {
      this.#forgetLostSignals();
    }
    this.#compile(exec);
  }

  #compile(exec) {
    let script;
    try {
      exec.program = readScript(exec.text);
      exec.error = exec.program.error;
      exec.body = exec.program.body;
      exec.insertion = exec.program.insertion;
      script = compileScript(exec.program.text, exec.file, exec.program.offset);
    } catch (failure) {
      if (failure instanceof Refusal) {
        exec.report.refused(failure);
        this.#end(1);
      } else {
        this.#fail(failure, true);
      }
      return;
    }
    // In a later turn, because a SIGINT of this one would be lost when the script begins.
    setImmediate(() => this.#exec === exec && this.#run(exec, script));
  }

  #run(exec, script) {
    const listeners = process.rawListeners('SIGINT');
    let value;
    try {
      exec.program.names.forEach(makeAssignable);
      this.#inScript = true;
      interruptibly(() => {
        try {
          value = script.runInThisContext();
        } finally {
          exec.turned = true;
        }
        if (exec.program.isAsync) {
          exec.unsettled = true;
          Reflect.apply(THEN, value, [
            (result) => this.#settled(exec, result),
            (error) => exec === this.#exec && process._fatalException(error, false),
          ]);
        }
        process._tickCallback();
      });
      this.#leaveScript(listeners);
    } catch (error) {
      this.#leaveScript(listeners);
      if (exec.ended) {
        leaveCallbacks();
        finishTicks();
        this.#leave();
      } else if (error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') {
        exec.ended = true;
        leaveCallbacks();
        finishTicks();
        this.#interrupt();
      } else {
        process._fatalException(error, false);
      }
      return;
    }
    if (exec.ended) {
      this.#leave();
    } else if (exec.program.hasValue && !exec.program.isWrapped) {
      this.#keep(exec, value);
    } else if (exec.program.isWrapped && !exec.program.isAsync && value) {
      this.#keep(exec, value[0]);
    }
  }

  // Node takes the listeners of SIGINT away for the script, and its own handler afterwards. It
  // does not see that there is none left then, if the script has brought a listener.
  #leaveScript(known) {
    const listeners = process.rawListeners('SIGINT');
    if (listeners.some((listener, index) => listener !== known[index])) {
      process.removeAllListeners('SIGINT');
      listeners.forEach((listener) => process.on('SIGINT', listener));
    }
    this.#inScript = false;
  }

  #settled(exec, result) {
    exec.unsettled = false;
    if (exec === this.#exec && result) {
      this.#keep(exec, result[0]);
    }
  }

  // As in a run: shown at once, but a promise by what it is fulfilled with.
  #keep(exec, value) {
    if (types.isPromise(value)) {
      exec.promise = value;
    } else {
      exec.value = textOf(value);
    }
  }

  // The loop has nothing left to do.
  #idle = () => {
    const exec = this.#exec;
    if (!exec) {
      return;
    }
    const listeners = process.listeners('beforeExit');
    if (listeners.at(-1) !== this.#idle) {
      // Last, because what others do there may give the loop something to do.
      process.off('beforeExit', this.#idle); // and it is there again, behind the others
      setImmediate(() => {});
      return;
    }
    const { promise } = exec;
    if (promise && !/^[^{]*\{\s*<(?:pending|rejected)>/.test(inspect(promise))) {
      exec.promise = null;
      Reflect.apply(THEN, promise, [(value) => (exec.value = textOf(value))]);
      setImmediate(() => {});
      return;
    }
    if (exec.unsettled) {
      fs.writeSync(2, 'Warning: Detected unsettled top-level await\n');
    }
    const code = Number(process.exitCode ?? (exec.unsettled ? EXIT_UNSETTLED : 0)) & 255;
    if (code === 0 && exec.value !== null) {
      this.#channel.send(WIRE_VALUE, bounded(exec.value, WIRE_MAX_VALUE));
    }
    this.#end(code);
  };

  // Of an exec that is over an error is nobody's; and others may listen.
  #uncaught(error) {
    const isOurs = process.listeners('uncaughtException').length === 1;
    if (isOurs && this.#exec && !this.#exec.ended && error !== EXIT_MARK) {
      this.#fail(error, false);
    }
  }

  #fail(error, compiling) {
    const { report, text } = this.#exec;
    try {
      report.failed(error, compiling);
      fs.writeSync(2, report.describe(error, text));
    } catch {
      // an error with ideas of its own
    }
    this.#cancel();
    this.#end(1);
  }

  // SIGINT, and not in the script.
  #signalled() {
    if (this.#exec) {
      this.#mayHaveLost = true;
      this.#interrupt();
    }
  }

  // A SIGINT that node has lost at the end of one script it finds at the begin of the next.
  #forgetLostSignals() {
    this.#mayHaveLost = false;
    this.#inScript = true;
    for (let i = 0; i < MAX_LOST && findsLostSignal(); i++);
    this.#inScript = false;
  }

  #interrupt() {
    this.#exec.report.interrupted();
    this.#cancel();
    this.#end(128 + os.constants.signals.SIGINT, 1);
  }

  // By process.exit.
  #leave() {
    this.#cancel();
    const { code, value } = this.#exec;
    if (code === 0 && value !== null) {
      this.#channel.send(WIRE_VALUE, bounded(value, WIRE_MAX_VALUE));
    }
    this.#end(code);
  }

  #end(code, interrupted = 0) {
    const { old } = this.#exec;
    this.#exec.ended = true;
    this.#exec = null;
    for (const [name, value] of old) {
      if (value === undefined) {
        delete process.env[name];
      } else {
        process.env[name] = value;
      }
    }
    process.exitCode = undefined;
    this.#channel.send(WIRE_DONE, words(code, interrupted));
    this.#wait();
  }

  // Takes from the loop what the exec has given it.
  #cancel() {
    for (const timer of this.#timers.keys()) {
      clearTimeout(timer);
      clearImmediate(timer);
    }
    this.#timers.clear();
    this.#exec.workers.forEach((worker) => worker.terminate());
    for (const handle of process._getActiveHandles()) {
      if (!this.#exec.known.has(handle) && ![0, 1, 2].includes(handle.fd)) {
        handle.unref?.();
        (handle.destroy ?? (handle.pid ? null : handle.close))?.call(handle);
      }
    }
  }

  // -- what the program finds in place of node's own

  #replaceExit() {
    const exit = (code) => {
      const exec = this.#exec;
      if (!exec) {
        return; // of an exec that is over
      }
      if (code !== undefined) {
        process.exitCode = code;
      }
      exec.code ??= Number(process.exitCode ?? 0) & 255;
      exec.ended = true;
      if (!exec.turned) {
        stopHere(); // out of the script; nothing can catch this
      }
      setImmediate(() => this.#exec === exec && this.#leave());
      throw EXIT_MARK;
    };
    process.exit = exit;
    process.reallyExit = exit;
  }

  // Timers are known, so that they can be cancelled.
  #watchTimers() {
    const timers = require('node:timers');
    for (const name of ['setTimeout', 'setInterval', 'setImmediate']) {
      const original = timers[name];
      const { [name]: watched } = {
        [name]: (callback, ...rest) => {
          const owner = this.#owner ?? this.#exec;
          if (!owner || typeof callback !== 'function') {
            return original(callback, ...rest);
          }
          const once = name !== 'setInterval';
          const known = this.#timers;
          const call = (self, values) => this.#callFor(owner, callback, self, values);
          const timer = original(function (...values) {
            if (once) {
              known.delete(timer);
            }
            return call(this, values);
          }, ...rest);
          known.set(timer, owner);
          return timer;
        },
      };
      Object.defineProperties(watched, Object.getOwnPropertyDescriptors(original));
      timers[name] = watched;
      globalThis[name] = watched;
    }
    for (const name of ['clearTimeout', 'clearInterval', 'clearImmediate']) {
      const original = timers[name];
      const { [name]: watched } = {
        [name]: (timer) => {
          this.#timers.delete(timer);
          original(timer);
        },
      };
      timers[name] = watched;
      globalThis[name] = watched;
    }
    this.#watchPromisedTimers();
    Module.syncBuiltinESMExports();
  }

  #callFor(owner, callback, self, values) {
    const before = this.#owner;
    this.#owner = owner;
    try {
      return Reflect.apply(callback, self, values);
    } finally {
      this.#owner = before;
    }
  }

  #watchPromisedTimers() {
    const { setImmediate, setTimeout } = globalThis;
    const promised = require('node:timers/promises');
    const original = { ...promised };
    promised.setTimeout = (delay, value, options) =>
      options === undefined
        ? new Promise((resolve) => setTimeout(resolve, delay, value))
        : original.setTimeout(delay, value, options);
    promised.setImmediate = (value, options) =>
      options === undefined
        ? new Promise((resolve) => setImmediate(resolve, value))
        : original.setImmediate(value, options);
  }
}

const THEN = Promise.prototype.then;
const REALLY_EXIT = process.reallyExit.bind(process);

// Thrown by process.exit, where it cannot end the script at once.
const EXIT_MARK = new Error('the program has called process.exit()');

// Node's exit code when an await at the top is never done.
const EXIT_UNSETTLED = 13;

// Calls a function that SIGINT can end, wherever it is; or else a time limit.
function interruptibly(callback, options = { breakOnSigint: true }) {
  const script = new vm.Script('globalThis[Symbol.for("hutch.call")]()');
  const name = Symbol.for('hutch.call');
  Object.defineProperty(globalThis, name, { configurable: true, value: callback });
  try {
    script.runInThisContext({ ...options, displayErrors: false });
  } finally {
    delete globalThis[name];
  }
}

// More than there can be.
const MAX_LOST = 16;

/*
 * Node has a thread of its own for SIGINT as long as a script runs. Once it sleeps, there is
 * no SIGINT that it has not taken.
 */
function findsLostSignal() {
  const list = () => fs.readdirSync('/proc/self/task');
  const isAsleep = (id) => /\) S /.test(fs.readFileSync(`/proc/self/task/${id}/stat`, 'latin1'));
  const known = list();
  try {
    interruptibly(() => {
      for (const begin = Date.now(); Date.now() - begin < 1000; ) {
        const id = list().find((name) => !known.includes(name));
        if (id && isAsleep(id)) {
          return;
        }
      }
    });
    return false;
  } catch {
    return true;
  }
}

/*
 * What waits behind the await that a script was stopped at cannot be taken away. It gets a
 * moment here, for otherwise it would run where nothing can stop it.
 */
function finishTicks() {
  for (let i = 0; i < 10; i++) {
    try {
      interruptibly(() => process._tickCallback(), { timeout: 20 });
      return;
    } catch {
      leaveCallbacks(); // stopped, or an error of nobody's
    }
  }
}

/*
 * Node counts the callbacks that it is in, and dies when it has lost count, which it has
 * when one of them was left by an error that somebody caught. Of an error that nobody caught
 * it knows.
 */
function leaveCallbacks() {
  if (!process.hasUncaughtExceptionCaptureCallback()) {
    process.setUncaughtExceptionCaptureCallback(() => {});
    process._fatalException(EXIT_MARK, false);
    process.setUncaughtExceptionCaptureCallback(null);
  }
}

function stopHere() {
  process.kill(process.pid, 'SIGINT');
  for (const begin = Date.now(); Date.now() - begin < 1000; );
}

// Some of node's globals can be read only, and are yet names that programs give.
function makeAssignable(name) {
  const property = Object.getOwnPropertyDescriptor(globalThis, name);
  if (property?.configurable && !property.writable) {
    const value = undefined;
    Object.defineProperty(globalThis, name, {
      configurable: true,
      enumerable: property.enumerable,
      writable: true,
      value,
    });
  }
}

// Gives descriptor 0 and process.stdin what the exec shall read.
function provideInput(data) {
  let name = '/dev/null';
  if (data) {
    name = path.join(os.tmpdir(), `.stdin.${process.pid}`);
    fs.writeFileSync(name, data, { mode: 0o600 });
  }
  try {
    fs.closeSync(0);
  } catch {
    // closed by a program
  }
  fs.openSync(name, 'r');
  if (data) {
    fs.unlinkSync(name);
  }
  let stream;
  Object.defineProperty(process, 'stdin', {
    configurable: true,
    enumerable: true,
    get() {
      stream ??= Object.assign(fs.createReadStream(null, { fd: 0, autoClose: false }), { fd: 0 });
      return stream;
    },
  });
}

/*
 * Where execs print to. Each has pipes of its own, which have names; they are put in the
 * places of descriptors 1 and 2. What a timer of an earlier exec prints by console or
 * process.stdout goes where that exec printed to, as far as it does so at once: behind an
 * await, and in other callbacks, it is what the exec prints that runs.
 */
class Output {
  #ownerNow;
  #addon = null;
  #last = null;
  #older = []; // execs that have pipes of their own

  constructor(ownerNow) {
    this.#ownerNow = ownerNow;
    try {
      this.#addon = loadAddon();
    } catch {
      // without it all execs print to the same pipes
    }
  }

  // Before an exec; alive are those that have timers.
  turnTo(exec, number, alive) {
    this.#older = this.#older.filter((old) => alive.has(old) || this.#close(old));
    const names = [WIRE_STDOUT_PIPE + number, WIRE_STDERR_PIPE + number];
    const fds = this.#open(names);
    if (fds) {
      if (alive.has(this.#last)) {
        this.#last.pipes = this.#open(['/proc/self/fd/1', '/proc/self/fd/2']);
        this.#older.push(this.#last);
      }
      fds.forEach((fd, index) => this.#addon.replace(fd, index + 1));
    }
    this.#last = exec;
  }

  #open(names) {
    const fds = this.#addon ? names.map((name) => this.#addon.open(name)) : [-1];
    if (fds.every((fd) => fd >= 0)) {
      return fds;
    }
    fds.filter((fd) => fd >= 0).forEach((fd) => fs.closeSync(fd));
    return null;
  }

  #close(exec) {
    exec.pipes?.forEach((fd) => fs.closeSync(fd));
    exec.pipes = null;
    return false;
  }

  watch() {
    [process.stdout, process.stderr].forEach((stream, index) => {
      const { write } = stream;
      const ownerNow = this.#ownerNow;
      stream.write = function (data, ...rest) {
        const fd = ownerNow()?.pipes?.[index];
        if (fd === undefined) {
          return Reflect.apply(write, this, [data, ...rest]);
        }
        const encoding = typeof rest[0] === 'string' ? rest[0] : 'utf8';
        writeAll(fd, typeof data === 'string' ? Buffer.from(data, encoding) : data);
        const done = rest.at(-1);
        if (typeof done === 'function') {
          process.nextTick(done);
        }
        return true;
      };
    });
  }
}

function writeAll(fd, data) {
  try {
    for (let at = 0; at < data.length; ) {
      at += fs.writeSync(fd, data, at);
    }
  } catch {
    // nobody reads what such an old exec prints
  }
}

// A stream of the process that a program has ended is made anew. Whether there was one.
function mendOutput() {
  let mended = false;
  for (const [name, fd] of Object.entries({ stdout: 1, stderr: 2 })) {
    const stream = process[name];
    if (stream.destroyed || ended.has(stream)) {
      const { Writable } = require('node:stream');
      const write = (data, _, done) => {
        fs.writeSync(fd, data);
        done();
      };
      const value = Object.assign(new Writable({ decodeStrings: true, write }), { fd });
      Object.defineProperty(process, name, { configurable: true, enumerable: true, value });
      globalThis.console = new console.Console(process.stdout, process.stderr);
      watchOutput();
      mended = true;
    }
  }
  return mended;
}

// Node hides it when its streams have been ended.
const ended = new WeakSet();

function watchOutput() {
  for (const stream of [process.stdout, process.stderr]) {
    stream.once('finish', () => ended.add(stream));
  }
}

// A stack up to where it comes to the runner.
function withoutOurFrames(stack) {
  const lines = stack.split('\n');
  const isFrame = (line) => /^ +at /.test(line);
  const isOurs = (line) =>
    isFrame(line) && (/node:vm:|runNextTicks \[as _tick/.test(line) || line.includes(__filename));
  const first = lines.findIndex(isOurs);
  if (first < 0) {
    return stack;
  }
  let next = first;
  while (next < lines.length && isFrame(lines[next])) {
    next++;
  }
  const open = next < lines.length && lines[next - 1].endsWith(' {') ? ' {' : '';
  return [...lines.slice(0, first), ...lines.slice(next)].join('\n').replace(
    lines[first - 1],
    (line) => line + open,
  );
}

function compileScript(text, filename, columnOffset) {
  const { constants } = vm;
  const importModuleDynamically =
    constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER ?? ((name) => import(name));
  return new vm.Script(text, { filename, columnOffset, importModuleDynamically });
}

// -- the text of an exec ------------------------------------------------------------------

/*
 * The program as a script whose names stay. Declarations at its top become var, so that
 * they can be made again. What awaits, imports or returns there is put into a function, and
 * its names become globals. Lines stay where they are; columns too, mostly.
 */
function readScript(text) {
  const hashbang = /^(?:\uFEFF)?#!/.test(text);
  const source = hashbang ? text.replace('#!', '//') : text;
  const simple = parse(source, { sourceType: 'script' });
  if (simple.body && !(source.includes('await') && mentionsAwait(simple.body))) {
    return keepNames(source, simple.body);
  }
  const full = parse(source, {
    sourceType: 'script',
    allowReturnOutsideFunction: true,
    allowAwaitOutsideFunction: true,
    allowImportExportEverywhere: true,
  });
  if (full.body) {
    return wrap(source, full.body);
  }
  if (compiles(source)) {
    return { text: source, names: [], offset: 0, hasValue: false }; // newer than acorn
  }
  const stripped = withoutTypes(text, full.error);
  if (stripped) {
    return readScript(stripped);
  }
  return { text: source, names: [], offset: 0, error: full.error };
}

function compiles(text) {
  try {
    new vm.Script(text);
    return true;
  } catch {
    return false;
  }
}

function withoutTypes(text, error) {
  if (!(error instanceof SyntaxError)) {
    return null;
  }
  if (!Module.stripTypeScriptTypes) {
    if (looksLikeTypeScript(text, error.pos)) {
      throw missingStripper(text, error.loc.line);
    }
    return null;
  }
  for (const mode of ['strip', 'transform']) {
    try {
      const stripped = stripTypes(text, { mode });
      return stripped === text ? null : stripped;
    } catch {
      // the other way, or none
    }
  }
  return null;
}

// Changes of a text, made from its end to its beginning.
class Edits {
  #text;
  #list = [];

  constructor(text) {
    this.#text = text;
  }

  replace(start, end, words) {
    this.#list.push({ start, end, words, order: this.#list.length });
  }

  insert(at, words) {
    this.replace(at, at, words);
  }

  blank(start, end) {
    this.replace(start, end, this.#text.slice(start, end).replace(/[^\r\n\u2028\u2029]/g, ' '));
  }

  result() {
    let text = this.#text;
    this.#list.sort((a, b) => b.start - a.start || b.order - a.order);
    for (const { start, end, words } of this.#list) {
      text = text.slice(0, start) + words + text.slice(end);
    }
    return text;
  }
}

function lastExpression(body) {
  const last = body.findLast(({ type }) => type !== 'EmptyStatement');
  return last?.type === 'ExpressionStatement' ? last : null;
}

// A program that can be a script as it is, but for let, const and class.
function keepNames(text, body) {
  const edits = new Edits(text);
  const names = [];
  for (const node of body) {
    if (node.type === 'VariableDeclaration') {
      edits.replace(node.start, node.start + node.kind.length, 'var'.padEnd(node.kind.length));
      node.declarations.forEach(({ id }) => boundNames(id, names));
    } else if (node.type === 'ClassDeclaration') {
      edits.insert(node.start, `var ${node.id.name}=`);
      edits.insert(node.end, ';');
      names.push(node.id.name);
    } else if (node.type === 'FunctionDeclaration') {
      names.push(node.id.name);
    }
  }
  const hasValue = lastExpression(body) !== null;
  return { text: edits.result(), names, offset: 0, hasValue, body };
}

const RETURN = 'return[(';

// A program in a function, whose value is a list with the value of its last expression.
function wrap(text, body) {
  const edits = new Edits(text);
  const names = [];
  const functions = [];
  let isAsync = false;
  const visit = (node, isTop) => {
    if (node === null || typeof node !== 'object') {
      return;
    }
    if (Array.isArray(node)) {
      node.forEach((child) => visit(child, isTop));
      return;
    }
    isAsync ||= node.type === 'AwaitExpression' || (node.type === 'ForOfStatement' && node.await);
    if (node.type === 'VariableDeclaration' && (isTop || node.kind === 'var')) {
      assignInstead(node, text, edits, names);
    }
    if (/Function|^(?:MethodDefinition|PropertyDefinition|StaticBlock)$/.test(node.type)) {
      return;
    }
    const rest = Object.entries(node).filter(([key]) => key !== 'type' && key !== 'loc');
    for (const [key, child] of rest) {
      if (key === 'init' || key === 'left') {
        visit(markHead(child, node), false);
      } else {
        visit(child, false);
      }
    }
  };
  for (const node of body) {
    isAsync = topLevel(node, text, edits, names, functions) || isAsync;
    const isNamed = node.type === 'ExportNamedDeclaration' && node.declaration;
    visit(isNamed ? node.declaration : node, true);
  }
  visitMeta(body, edits);
  const last = lastExpression(body);
  let insertion;
  if (last) {
    const { start, end, loc } = last.expression;
    edits.insert(start, RETURN);
    edits.insert(end, ')]');
    const { line, column } = loc.start;
    insertion = { words: RETURN, line, column, source: text.split(LINE_BREAK)[line - 1] };
  }
  const hoisted = functions.map((name) => `globalThis.${name}=${name};`).join('');
  const unique = [...new Set(names)];
  const declared = unique.length > 0 ? `var ${unique.join()};` : '';
  const begin = `${declared}(${isAsync ? 'async' : ''}()=>{${hoisted}`;
  return {
    text: `${begin}${edits.result()}\n})()`,
    names: [...unique, ...functions],
    offset: -begin.length,
    hasValue: last !== null,
    isWrapped: true,
    insertion,
    isAsync,
    body,
  };
}

// In the head of a loop an assignment needs no void around it.
function markHead(child, parent) {
  if (child?.type === 'VariableDeclaration' && /^For/.test(parent.type)) {
    child.inHead = parent.type === 'ForStatement' ? 'init' : 'left';
  }
  return child;
}

// What may stand at the top only. Whether it needs an async function.
function topLevel(node, text, edits, names, functions) {
  const { type, declaration } = node;
  if (type === 'ImportDeclaration') {
    importInstead(node, edits, names);
    return true;
  }
  if (type === 'ExportNamedDeclaration' && declaration) {
    edits.blank(node.start, declaration.start);
    topLevel(declaration, text, edits, names, functions);
  } else if (type === 'ExportNamedDeclaration' || type === 'ExportAllDeclaration') {
    edits.blank(node.start, node.end);
  } else if (type === 'ExportDefaultDeclaration') {
    if (declaration.id) {
      edits.blank(node.start, declaration.start);
      topLevel(declaration, text, edits, names, functions);
    } else {
      edits.replace(node.start, declaration.start, 'void (');
      edits.insert(declaration.end, ')');
    }
  } else if (type === 'ClassDeclaration') {
    edits.insert(node.start, `${node.id.name}=`);
    edits.insert(node.end, ';');
    names.push(node.id.name);
  } else if (type === 'FunctionDeclaration') {
    functions.push(node.id.name);
  }
  return false;
}

function assignInstead(node, text, edits, names) {
  const { kind, declarations, inHead, start, end } = node;
  declarations.forEach(({ id }) => boundNames(id, names));
  if (inHead === 'left') {
    edits.blank(start, start + kind.length);
    return;
  }
  edits.replace(start, start + kind.length, inHead ? '' : 'void ');
  edits.insert(declarations[0].start, '(');
  for (const { id, init, start: from, end: to } of declarations) {
    edits.insert(from, '(');
    if (!init) {
      edits.insert(id.end, kind === 'var' ? '' : '=undefined');
    }
    edits.insert(to, ')');
  }
  const last = declarations.at(-1).end;
  edits.insert(last, inHead || text[end - 1] === ';' ? ')' : ');');
}

function importInstead({ source, specifiers, start, end, loc }, edits, names) {
  const wanted = specifiers.map(({ type, imported, local }) => {
    names.push(local.name);
    const name = type === 'ImportDefaultSpecifier' ? 'default' : imported?.name ?? imported?.value;
    const value = type === 'ImportNamespaceSpecifier' ? 'm' : `g(${JSON.stringify(name)})`;
    return `${local.name}=${value}`;
  });
  const get =
    `const g=(n)=>{if(n in m)return m[n];throw new SyntaxError("The requested module '"+` +
    `${source.raw}+"' does not provide an export named '"+n+"'")}`;
  const taken = `await import(${source.raw}).then((m)=>{${get};${wanted.join(';')}});`;
  edits.replace(start, end, taken + '\n'.repeat(loc.end.line - loc.start.line));
}

// import.meta is of modules only.
function visitMeta(node, edits) {
  if (node === null || typeof node !== 'object') {
    return;
  }
  if (node.type === 'MetaProperty' && node.meta.name === 'import') {
    const url = 'require("node:url").pathToFileURL(__filename).href';
    const meta = `({url:${url},filename:__filename,dirname:__dirname})`;
    edits.replace(node.start, node.end, meta);
    return;
  }
  Object.values(node).forEach((child) => visitMeta(child, edits));
}

function boundNames(pattern, names) {
  switch (pattern?.type) {
    case 'Identifier':
      names.push(pattern.name);
      break;
    case 'ObjectPattern':
      pattern.properties.forEach(({ value, argument }) => boundNames(value ?? argument, names));
      break;
    case 'ArrayPattern':
      pattern.elements.forEach((element) => boundNames(element, names));
      break;
    case 'AssignmentPattern':
      boundNames(pattern.left, names);
      break;
    case 'RestElement':
      boundNames(pattern.argument, names);
      break;
  }
}

// Without node's warning that the loader of a script's imports is experimental.
function loadImport() {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    compileScript('import("node:fs")', 'fs').runInThisContext();
  } finally {
    process.emitWarning = emitWarning;
  }
}

// Node's main program is an empty file; all else happens in its loop.
function startSession(channel, home) {
  const file = path.join(home, `${PROGRAM_NAME}.cjs`);
  for (const name of [file, process.argv[1]]) {
    fs.rmSync(name, { force: true }); // of an interpreter that has died
  }
  store({ text: '', file }, process.argv[1]);
  process.argv[1] = file;
  provideCommonJs(file);
  setEnvironmentData(WORKER_DATA, file);
  hideRunner();
  loadImport();
  setImmediate(() => {
    fs.rmSync(file, { force: true });
    new Session(channel, home).begin();
  });
}

// -- all of it ----------------------------------------------------------------------------

// Writes the program's file, and the link that node follows to it.
function store({ text, map, file }, link) {
  const data = map && Buffer.from(JSON.stringify(map)).toString('base64');
  const tail = map ? `\n//# sourceMappingURL=data:application/json;base64,${data}` : '';
  fs.writeFileSync(file, text + tail, { mode: 0o600 });
  fs.symlinkSync(file, link);
  process.setSourceMapsEnabled(Boolean(map));
}

// Gives an ES module what it would have as CommonJS.
function provideCommonJs(file) {
  const folder = path.dirname(file);
  const main = new Module('.');
  const require = Module.createRequire(file);
  require.main = Object.assign(main, { filename: file, paths: Module._nodeModulePaths(folder) });
  const values = [main.exports, require, main, file, folder];
  COMMONJS_NAMES.forEach((name, index) => {
    const value = values[index];
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  });
}

/*
 * What is written to a pipe is written when the call returns. Node would keep what a
 * full pipe does not take, lose it at process.exit(), and fill its memory with it.
 */
function writeAtOnce() {
  for (const stream of [process.stdout, process.stderr]) {
    stream._handle?.setBlocking?.(true);
  }
}

// Nothing in the process shall speak of us.
function hideRunner() {
  process.execArgv.splice(process.execArgv.indexOf('-r'), 2);
  for (const name of Object.keys(require.cache)) {
    delete require.cache[name];
  }
}

function listen(channel, program) {
  const report = new Report(channel, program);
  const value = new Value();
  if (program.hasValue) {
    value.collect();
  }
  process.on('uncaughtExceptionMonitor', (error, origin) => {
    const handled = process.listenerCount('uncaughtException') > 0;
    if (handled || process.hasUncaughtExceptionCaptureCallback()) {
      return;
    }
    try {
      report.fatal(error, origin);
    } catch {
      // an error with ideas of its own
    }
  });
  process.on('exit', (code) => {
    report.exiting = true;
    if (code === 0 && value.text !== null) {
      channel.send(WIRE_VALUE, bounded(value.text, WIRE_MAX_VALUE));
    }
  });
}

// The program as it is handed to node.
function prepare(text, home) {
  let program = readProgram(text);
  if (program.error instanceof SyntaxError) {
    program = readTypeScript(program);
  }
  program.file = path.join(home, PROGRAM_NAME + program.ending);
  if (program.body) {
    keepValue(program);
  }
  return program;
}

function main() {
  const home = process.cwd();
  let channel, text, program;
  acorn = require('./acorn.js'); // while nobody waits for us yet
  try {
    if (mayBeParked()) {
      park();
    }
    writeAtOnce();
    channel = new Channel(WIRE_CHANNEL_FD_NODE);
    text = receiveRequest(channel);
  } catch {
    giveUp();
  }
  if (text === null) {
    startSession(channel, home);
    return;
  }
  try {
    program = prepare(text, home);
    store(program, process.argv[1]);
  } catch (failure) {
    const report = new Report(channel, { file: path.join(home, `${PROGRAM_NAME}.ts`) });
    if (failure instanceof Refusal) {
      report.refused(failure);
    } else {
      report.notStored(failure);
    }
    process.reallyExit(1);
  }
  process.argv[1] = program.file;
  if (program.ending === '.mjs') {
    provideCommonJs(program.file);
    setEnvironmentData(WORKER_DATA, program.file);
  }
  listen(channel, program);
  hideRunner();
}

// Worker threads load this file too.
if (isMainThread) {
  main();
} else if (getEnvironmentData(WORKER_DATA)) {
  provideCommonJs(getEnvironmentData(WORKER_DATA));
}
