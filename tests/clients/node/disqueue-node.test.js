// disqueue-node: callbacks, on the connection of a very old node_redis.

'use strict'

const assert = require('node:assert/strict')
const test = require('node:test')
const Disqueue = require('disqueue-node')

const { HOST, PORT, JOB_ID, NODE_ID, SHOW_FIELDS, waitUntil, next, call, setPassword } = require('./support')

async function connected (options = {}) {
  const client = new Disqueue({ host: HOST, port: PORT, ...options })
  await next(client, 'ready')
  return client
}

let client
test.before(async () => { client = await connected() })

test('hello names this node', async () => {
  const { version, nodeId, nodeIds } = await call(client, 'hello', {})
  assert.equal(version, 1)
  assert.match(nodeId, NODE_ID)
  assert.deepEqual(nodeIds, [nodeId, '', String(PORT), '1'])
})

test('info is read into its sections', async () => {
  const info = await call(client, 'info', {})
  assert.deepEqual(Object.keys(info),
    ['server', 'clients', 'memory', 'jobs', 'queues', 'persistence', 'stats', 'cpu'])
  assert.equal(info.server.tcp_port, String(PORT))
  assert.equal(info.persistence.loading, '0')
})

test('jobs come back as they were added and in order', async () => {
  const queue = 'ordered'
  const ids = []
  for (const job of ['a', 'b', 'ü']) ids.push(await call(client, 'addJob', { queue, job }))
  ids.forEach(id => assert.match(id, JOB_ID))
  assert.equal(await call(client, 'qlen', queue), 3)
  assert.deepEqual(await call(client, 'getJob', { queue }), [
    { queue, jobId: ids[0], body: 'a' },
    { queue, jobId: ids[1], body: 'b' },
    { queue, jobId: ids[2], body: 'ü' }
  ])
})

test('nothing there is an empty list', async () => {
  assert.deepEqual(await call(client, 'getJob', { queue: 'empty', nohang: true }), [])
})

test('a blocked consumer gets the job when it comes', async () => {
  const queue = 'awaited'
  const consumer = await connected()
  const fetched = call(consumer, 'getJob', { queue: [queue, 'awaited-too'], count: 1 })
  await waitUntil(async () => (await call(client, 'info', {})).clients.blocked_clients === '1',
    'the consumer is blocked')
  const jobId = await call(client, 'addJob', { queue, job: 'at last' })
  assert.deepEqual(await fetched, [{ queue, jobId, body: 'at last' }])
})

test('acknowledged jobs are gone', async () => {
  const queue = 'acknowledged'
  for (const acknowledge of ['ackJob', 'fastAck']) {
    const ids = [
      await call(client, 'addJob', { queue, job: '1' }),
      await call(client, 'addJob', { queue, job: '2' })
    ]
    assert.equal((await call(client, 'getJob', { queue })).length, 2)
    assert.equal(await call(client, acknowledge, ids), 2)
    assert.equal(await call(client, acknowledge, ids[0]), 0)
    assert.equal(await call(client, 'show', ids[0]), null)
  }
})

test('nack puts the job back and counts', async () => {
  const queue = 'nacked'
  const jobId = await call(client, 'addJob', { queue, job: 'hard' })
  await call(client, 'getJob', { queue })
  assert.equal(await call(client, 'nack', jobId), 1)
  assert.deepEqual(await call(client, 'getJob', { queue, withcounters: true }),
    [{ queue, jobId, body: 'hard', nacks: 1, additionalDeliveries: 0 }])
})

test('working answers the retry time', async () => {
  const jobId = await call(client, 'addJob', { queue: 'working', job: 'long', retry: 60 })
  assert.equal(await call(client, 'working', jobId), 60)
  await assert.rejects(call(client, 'working', 'nonsense'), /BADID Invalid Job ID format\./)
})

test('a job not acknowledged comes back', async () => {
  const queue = 'again'
  const jobId = await call(client, 'addJob', { queue, job: 'x', retry: 1 })
  await call(client, 'getJob', { queue })
  assert.deepEqual(await call(client, 'getJob', { queue, withcounters: true }),
    [{ queue, jobId, body: 'x', nacks: 0, additionalDeliveries: 1 }])
})

test('every option of addJob is understood', async () => {
  const queue = 'options'
  const jobId = await call(client, 'addJob', {
    queue, job: 'x', timeout: 100, replicate: 1, delay: 1, retry: 60, ttl: 600, maxlen: 5, async: true
  })
  const job = await call(client, 'show', jobId)
  assert.deepEqual(Object.keys(job), SHOW_FIELDS)
  assert.deepEqual([job.repl, job.delay, job.retry, job.body], [1, 1, 60, 'x'])
  assert.equal((await call(client, 'getJob', { queue }))[0].jobId, jobId)
})

test('dequeue, enqueue, delete', async () => {
  const queue = 'moved'
  const jobId = await call(client, 'addJob', { queue, job: 'x' })
  assert.equal(await call(client, 'dequeue', jobId), 1)
  assert.equal(await call(client, 'qlen', queue), 0)
  assert.equal(await call(client, 'enqueue', jobId), 1)
  assert.equal(await call(client, 'delJob', [jobId]), 1)
  assert.equal(await call(client, 'qlen', queue), 0)
})

test('queue scan finds the queues', async () => {
  for (let n = 0; n < 20; n++) await call(client, 'addJob', { queue: `scanned-${n}`, job: 'x' })
  const { cursor, queues } = await call(client, 'qscan', { count: 5, busyloop: true, minlen: 1 })
  assert.equal(cursor, 0)
  assert.equal(queues.filter(name => name.startsWith('scanned-')).length, 20)
})

test('password', async () => {
  await setPassword('', 'secret')
  try {
    await assert.rejects(call(client, 'qlen', 'any'), /NOAUTH Authentication required\./)
    await assert.rejects(call(client, 'auth', { password: 'wrong' }), /ERR invalid password/)
    assert.equal(await call(client, 'auth', { password: 'secret' }), 'OK')
    assert.equal(await call(client, 'qlen', 'any'), 0)
  } finally {
    await setPassword('secret', '')
  }
})
