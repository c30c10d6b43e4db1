// thunk-disque, by promises: every command under its own name, connections chosen by job ID.

'use strict'

const assert = require('node:assert/strict')
const test = require('node:test')
const disque = require('thunk-disque')

const { HOST, PORT, JOB_ID, NODE_ID, SHOW_FIELDS, waitUntil, setPassword } = require('./support')

function connected (options = {}) {
  return disque.createClient(PORT, HOST, { usePromise: true, ...options })
}

const client = connected()

test('hello names this node', async () => {
  const [version, nodeId, ...nodes] = await client.hello()
  assert.equal(version, 1)
  assert.match(nodeId, NODE_ID)
  assert.deepEqual(nodes, [[nodeId, '', String(PORT), '1']])
})

test('ping, info, time', async () => {
  assert.equal(await client.ping(), 'PONG')
  assert.equal((await client.info()).tcp_port, String(PORT))
  assert.equal((await client.info('queues')).tcp_port, undefined)
  const [seconds, microseconds] = await client.time()
  assert.ok(Math.abs(seconds - Date.now() / 1000) < 60)
  assert.ok(microseconds < 1_000_000)
})

test('settings', async () => {
  assert.deepEqual(await client.config('get', 'appendfsync'), ['appendfsync', 'everysec'])
  assert.equal(await client.config('set', 'slowlog-max-len', 64), 'OK')
  assert.deepEqual(await client.config('get', 'slowlog-max-len'), ['slowlog-max-len', '64'])
  assert.equal(await client.slowlog('reset'), 'OK')
  assert.equal(await client.slowlog('len'), 0)
})

test('the command table is complete', async () => {
  const rows = await client.command()
  assert.equal(await client.command('count'), rows.length)
  const names = rows.map(row => row[0])
  const known = client.clientCommands.filter(name => name !== 'quit')
  assert.deepEqual(known.filter(name => !names.includes(name)), [])
  assert.deepEqual(rows.filter(row => row.length !== 6), [])
  const [ackjob, unknown] = await client.command('info', 'ackjob', 'no-such-command')
  assert.deepEqual(ackjob, ['ackjob', -1, ['write', 'fast'], 0, 0, 0])
  assert.equal(unknown, null)
})

test('produce, consume, acknowledge', async () => {
  const queue = 'main'
  const ids = [await client.addjob(queue, 'first', 0), await client.addjob(queue, 'second', 0)]
  ids.forEach(id => assert.match(id, JOB_ID))
  assert.equal(await client.qlen(queue), 2)
  assert.deepEqual(await client.getjob('count', 10, 'from', queue),
    [[queue, ids[0], 'first'], [queue, ids[1], 'second']])
  assert.equal(await client.ackjob(...ids), 2)
  assert.equal(await client.ackjob(...ids), 0)
  assert.equal(await client.show(ids[0]), null)
})

test('a body of bytes stays as it is', async () => {
  const raw = connected({ returnBuffers: true })
  const body = Buffer.from([0, 13, 10, 255])
  await raw.addjob('bytes', body, 0)
  assert.deepEqual((await raw.getjob('from', 'bytes'))[0][2], body)
})

test('a blocked consumer gets the job when it comes', async () => {
  const consumer = connected()
  const fetched = consumer.getjob('timeout', 20_000, 'from', 'awaited')
  await waitUntil(async () => (await client.info()).blocked_clients === '1',
    'the consumer is blocked')
  const id = await client.addjob('awaited', 'at last', 0)
  assert.deepEqual(await fetched, [['awaited', id, 'at last']])
})

test('nothing there is null', async () => {
  assert.equal(await client.getjob('nohang', 'from', 'empty'), null)
  assert.equal(await client.getjob('timeout', 20, 'from', 'empty'), null)
  assert.equal(await client.qstat('no-such-queue'), null)
})

test('nack, working, fastack', async () => {
  const id = await client.addjob('worked', 'x', 0, 'retry', 60)
  await client.getjob('from', 'worked')
  assert.equal(await client.working(id), 60)
  assert.equal(await client.nack(id), 1)
  assert.deepEqual(await client.getjob('withcounters', 'from', 'worked'),
    [['worked', id, 'x', 'nacks', 1, 'additional-deliveries', 0]])
  assert.equal(await client.fastack(id), 1)
  assert.equal(await client.fastack(id), 0)
})

test('show and qstat become objects', async () => {
  const id = await client.addjob('shown', 'x', 0)
  const job = await client.show(id)
  assert.deepEqual(Object.keys(job), SHOW_FIELDS)
  assert.deepEqual([job.id, job.queue, job.state, job.body], [id, 'shown', 'queued', 'x'])
  const stat = await client.qstat('shown')
  assert.deepEqual([stat.name, stat.len, stat['jobs-in'], stat.pause], ['shown', 1, 1, 'none'])
})

test('dequeue, enqueue, peek, delete', async () => {
  const id = await client.addjob('moved', 'x', 0)
  assert.equal(await client.dequeue(id), 1)
  assert.deepEqual(await client.qpeek('moved', 1), [])
  assert.equal(await client.enqueue(id), 1)
  assert.deepEqual(await client.qpeek('moved', 1), [['moved', id, 'x']])
  assert.equal(await client.deljob(id), 1)
})

test('scans', async () => {
  const id = await client.addjob('scanned', 'x', 0)
  const [cursor, names] = await client.qscan('busyloop')
  assert.equal(cursor, '0')
  assert.ok(names.includes('scanned'))
  assert.deepEqual(await client.jscan('busyloop', 'queue', 'scanned', 'state', 'queued'),
    ['0', [id]])
})

test('pause', async () => {
  assert.equal(await client.pause('paused', 'in'), 'in')
  const error = await client.addjob('paused', 'x', 0).catch(error => error)
  assert.equal(error.code, 'PAUSED')
  assert.equal(await client.pause('paused', 'none'), 'none')
})

test('monitor shows the commands of others', async () => {
  const watcher = connected()
  await watcher.ping()
  const seen = []
  watcher.on('monitor', line => seen.push(line))
  // Its promise is never kept: the library takes the answer for the first line.
  watcher.monitor()
  await waitUntil(() => seen.length === 1, 'MONITOR is answered')
  await client.qlen('watched')
  await waitUntil(() => seen.length === 2, 'the command is shown')
  assert.equal(seen[0], 'OK')
  assert.match(seen[1], /^\d+\.\d+ \[127\.0\.0\.1:\d+\] "qlen" "watched"$/)
})

test('the first word of an error is its code', async () => {
  const error = await client.show('nonsense').catch(error => error)
  assert.equal(error.code, 'BADID')
  assert.match(error.message, /Invalid Job ID format\./)
})

test('password', async () => {
  await setPassword('', 'secret')
  try {
    await assert.rejects(client.qlen('any'), { code: 'NOAUTH' })
    assert.equal(await connected({ authPass: 'secret' }).qlen('any'), 0)
    assert.equal(await client.auth('secret'), 'OK')
  } finally {
    await setPassword('secret', '')
  }
})
