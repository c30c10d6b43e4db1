// What every Node test file here shares: where the server is, and waiting without sleeping blindly.
//
// The server under test was started by `tests/clients/run`, fresh for each file, and its
// port is in the environment. Tests keep apart by using a queue of their own name.

'use strict'

const { createHash } = require('node:crypto')
const { once } = require('node:events')
const net = require('node:net')
const timers = require('node:timers/promises')

const HOST = '127.0.0.1'
const PORT = Number(process.env.DISQUE_PORT)
// Of all servers, where a suite has several. They have not met.
const PORTS = process.env.DISQUE_PORTS.split(' ').map(Number)

const JOB_ID = /^D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}$/
const NODE_ID = /^[0-9a-f]{40}$/

// SHOW answers these names in this order.
const SHOW_FIELDS = [
  'id', 'queue', 'state', 'repl', 'ttl', 'ctime', 'delay', 'retry', 'nacks',
  'additional-deliveries', 'nodes-delivered', 'nodes-confirmed', 'next-requeue-within',
  'next-awake-within', 'body'
]

// How long a condition that is bound to come may take on a busy machine.
const PATIENCE_MS = 60_000

/** Returns once `condition()` holds; fails after PATIENCE_MS. */
async function waitUntil (condition, what) {
  const giveUpAt = Date.now() + PATIENCE_MS
  while (!await condition()) {
    if (Date.now() > giveUpAt) throw new Error(`waited ${PATIENCE_MS} ms in vain: ${what}`)
    await timers.setTimeout(5)
  }
}

/** Resolves with what the emitter's next `event` carries. */
async function next (emitter, event) {
  return once(emitter, event, { signal: AbortSignal.timeout(PATIENCE_MS) })
}

/** Calls `method` of `client`, whose last argument is a callback, as a promise. */
function call (client, method, ...args) {
  return new Promise((resolve, reject) => {
    client[method](...args, (error, result) => error ? reject(error) : resolve(result))
  })
}

/** Changes the server's password over a plain socket, for libraries that have no CONFIG. */
async function setPassword (old, password) {
  const socket = net.connect(PORT, HOST)
  const send = (...args) => socket.write(
    `*${args.length}\r\n` + args.map(arg => `$${arg.length}\r\n${arg}\r\n`).join(''))
  if (old) send('AUTH', old)
  send('CONFIG', 'SET', 'requirepass', password)
  send('QUIT')
  let replies = ''
  for await (const part of socket) replies += part
  if (!/^(\+OK\r\n)+$/.test(replies)) throw new Error(`password not changed: ${replies}`)
}

/** A value of the directive `user`. */
function userLine (name, password, rest) {
  return `${name} sha256:${createHash('sha256').update(password).digest('hex')} ${rest}`
}

module.exports = {
  HOST,
  PORT,
  PORTS,
  JOB_ID,
  NODE_ID,
  SHOW_FIELDS,
  PATIENCE_MS,
  waitUntil,
  next,
  call,
  setPassword,
  userLine
}
