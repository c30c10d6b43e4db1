// node-redis as it comes: HELLO 3, CLIENT SETINFO, RESP3 nulls.

'use strict'

const assert = require('node:assert/strict')
const test = require('node:test')
const { createClient } = require('redis')

const { HOST, PORT, JOB_ID, waitUntil, setPassword, userLine } = require('./support')

async function connected (options = {}) {
  const client = createClient({ socket: { host: HOST, port: PORT, reconnectStrategy: false }, ...options })
  // Without a listener an error ends the process before the test can see it.
  client.on('error', () => {})
  return client.connect()
}

for (const RESP of [undefined, 2, 3]) {
  test(`RESP ${RESP ?? 'by default'}`, async t => {
    const client = await connected(RESP && { RESP })
    const queue = `resp-${RESP}`

    await t.test('ping and info', async () => {
      assert.equal(await client.ping(), 'PONG')
      assert.match(await client.info(), new RegExp(`^tcp_port:${PORT}\r$`, 'm'))
    })

    await t.test('settings', async () => {
      await client.configSet('slowlog-max-len', '64')
      assert.deepEqual({ ...await client.configGet('slowlog-max-len') }, { 'slowlog-max-len': '64' })
    })

    await t.test('produce, consume, acknowledge', async () => {
      const id = await client.sendCommand(['ADDJOB', queue, 'body', '0', 'RETRY', '60'])
      assert.match(id, JOB_ID)
      assert.deepEqual(await client.sendCommand(['GETJOB', 'FROM', queue]), [[queue, id, 'body']])
      assert.equal(await client.sendCommand(['WORKING', id]), 60)
      assert.equal(await client.sendCommand(['NACK', id]), 1)
      assert.deepEqual(await client.sendCommand(['GETJOB', 'WITHCOUNTERS', 'FROM', queue]),
        [[queue, id, 'body', 'nacks', 1, 'additional-deliveries', 0]])
      assert.equal(await client.sendCommand(['ACKJOB', id]), 1)
      assert.equal(await client.sendCommand(['SHOW', id]), null)
    })

    await t.test('attributes', async () => {
      const id = await client.sendCommand(['ADDJOB', queue, 'body', '0', 'ATTR', 'type', 'mail',
        'ATTR', 'traceparent', '00-4bf9-01'])
      const attributes = ['type', 'mail', 'traceparent', '00-4bf9-01']
      assert.deepEqual(await client.sendCommand(['GETJOB', 'WITHATTRS', 'FROM', queue]),
        [[queue, id, 'body', 'attrs', attributes]])
      assert.deepEqual((await client.sendCommand(['SHOW', id])).slice(-2), ['attrs', attributes])
      await assert.rejects(client.sendCommand(['ADDJOB', queue, 'body', '0', 'ATTR', 'type']),
        /ERR ATTR needs a name and a value/)
      assert.equal(await client.sendCommand(['ACKJOB', id]), 1)
    })

    await t.test('priorities, and waiting for the end', async () => {
      const order = `order-${queue}`
      const plain = await client.sendCommand(['DISQUE.ADDJOB', order, 'plain', '0'])
      const urgent = await client.sendCommand(['DISQUE', 'ADDJOB', order, 'urgent', '0', 'PRIORITY', '1'])
      assert.deepEqual((await client.sendCommand(['SHOW', urgent])).slice(-2), ['priority', 1])
      assert.deepEqual(await client.sendCommand(['GETJOB', 'FROM', order]), [[order, urgent, 'urgent']])
      assert.equal(await client.sendCommand(['ACKJOB', urgent]), 1)
      assert.deepEqual(await client.sendCommand(['WAITJOB', plain, urgent]), [[urgent, 'acked']])
      assert.equal(await client.sendCommand(['WAITJOB', 'TIMEOUT', '20', plain]), null)
      assert.deepEqual((await client.sendCommand(['QSTAT', order, 'CLUSTER'])).slice(2, 4), ['len', 1])
    })

    await t.test('delays and leases', async () => {
      const held = `held-${queue}`
      const id = await client.sendCommand(['ADDJOB', held, 'body', '0', 'RETRY', '60'])
      assert.deepEqual(await client.sendCommand(['GETJOB', 'LEASE', '600', 'FROM', held]),
        [[held, id, 'body']])
      assert.equal(await client.sendCommand(['WORKING', id, 'LEASE', '900']), 900)
      assert.equal(await client.sendCommand(['NACK', id, 'DELAY', '300']), 1)
      assert.deepEqual(await client.sendCommand(['JSCAN', 'STATE', 'delayed', 'QUEUE', held]),
        ['0', [id]])
      await assert.rejects(client.sendCommand(['NACK', id, 'DELAY', 'soon']), /ERR DELAY time/)
      assert.equal(await client.sendCommand(['NACK', id, 'DELAY', '0', 'SILENT']), 1)
      assert.deepEqual(await client.sendCommand(['GETJOB', 'WITHCOUNTERS', 'FROM', held]),
        [[held, id, 'body', 'nacks', 1, 'additional-deliveries', 0]])
    })

    await t.test('dead letters', async () => {
      const failing = `failing-${queue}`
      const id = await client.sendCommand(['ADDJOB', failing, 'body', '0', 'DEADQUEUE',
        `graves-${queue}`])
      assert.equal((await client.sendCommand(['GETJOB', 'FROM', failing])).length, 1)
      await assert.rejects(client.sendCommand(['NACK', id, 'DEAD', 'SILENT']),
        /ERR SILENT and DEAD exclude each other/)
      assert.equal(await client.sendCommand(['NACK', id, 'DEAD', 'REASON', 'no route']), 1)
      const [row] = await client.sendCommand(['GETJOB', 'WITHATTRS', 'FROM', `graves-${queue}`])
      assert.deepEqual(row.slice(1, 6), [id, 'body', 'attrs', [], 'dead'])
      assert.deepEqual(row[6].slice(0, 4), ['reason', 'nack', 'queue', failing])
      assert.deepEqual(row[6].slice(-2), ['note', 'no route'])
      assert.equal(await client.sendCommand(['ACKJOB', id]), 1)
    })

    await t.test('moves', async () => {
      const [source, target] = [`source-${queue}`, `target-${queue}`]
      const id = await client.sendCommand(['ADDJOB', source, 'a', '0'])
      const other = await client.sendCommand(['ADDJOB', source, 'b', '0'])
      assert.equal(await client.sendCommand(['MOVEJOB', target, other]), 1)
      assert.equal(await client.sendCommand(['QMOVE', source, target, 'COUNT', '9']), 1)
      assert.deepEqual(await client.sendCommand(['QPEEK', target, '9']),
        [[target, id, 'a'], [target, other, 'b']])
      assert.equal(await client.sendCommand(['QREDRIVE', target]), 0)
      assert.equal(await client.sendCommand(['QPURGE', target]), 2)
      await assert.rejects(client.sendCommand(['MOVEJOB', target, id, 'PRIORITY', '9']),
        /ERR PRIORITY must be between 1 and 7/)
    })

    await t.test('nothing there is null', async () => {
      assert.equal(await client.sendCommand(['GETJOB', 'NOHANG', 'FROM', queue]), null)
      assert.equal(await client.sendCommand(['GETJOB', 'TIMEOUT', '20', 'FROM', queue]), null)
      assert.equal(await client.sendCommand(['QSTAT', 'no-such-queue']), null)
    })
  })
}

test('a blocked consumer gets the job when it comes', async () => {
  const [client, consumer] = [await connected(), await connected()]
  const fetched = consumer.sendCommand(['GETJOB', 'TIMEOUT', '20000', 'FROM', 'awaited'])
  await waitUntil(async () => /^blocked_clients:1\r$/m.test(await client.info('clients')),
    'the consumer is blocked')
  const id = await client.sendCommand(['ADDJOB', 'awaited', 'at last', '0'])
  assert.deepEqual(await fetched, [['awaited', id, 'at last']])
})

test('pipelined commands are answered in order', async () => {
  const client = await connected()
  const ids = await Promise.all(Array.from({ length: 100 }, (_, n) =>
    client.sendCommand(['ADDJOB', 'pipelined', String(n), '0'])))
  const jobs = await client.sendCommand(['GETJOB', 'COUNT', '100', 'FROM', 'pipelined'])
  assert.deepEqual(jobs, ids.map((id, n) => ['pipelined', id, String(n)]))
})

test('name and password', async () => {
  await setPassword('', 'secret')
  try {
    await assert.rejects(connected({ password: 'wrong' }), /WRONGPASS/)
    const client = await connected({ password: 'secret', name: 'tester' })
    assert.equal(await client.ping(), 'PONG')
    assert.equal(await client.clientGetName(), 'tester')
  } finally {
    await setPassword('secret', '')
  }
})

test('URL with user and password', async () => {
  const byUrl = async (login, RESP) => {
    const client = createClient({
      url: `redis://${login}@${HOST}:${PORT}/0`, RESP, socket: { reconnectStrategy: false }
    })
    client.on('error', () => {})
    return client.connect()
  }
  await setPassword('', 'secret')
  try {
    for (const RESP of [2, 3]) {
      for (const login of ['default:secret', ':secret']) {
        assert.equal(await (await byUrl(login, RESP)).ping(), 'PONG')
      }
      await assert.rejects(byUrl('nobody:secret', RESP), /WRONGPASS/)
      await assert.rejects(byUrl('default:wrong', RESP), /WRONGPASS/)
    }
  } finally {
    await setPassword('secret', '')
  }
})

test('users', async () => {
  await setPassword('', 'secret')
  const admin = await connected({ password: 'secret' })
  try {
    await admin.configSet('user', userLine('mailer', 'long word', 'produce,consume users-*'))
    for (const RESP of [2, 3]) {
      const queue = `users-${RESP}`
      const client = createClient({
        url: `redis://mailer:long%20word@${HOST}:${PORT}/0`, RESP, socket: { reconnectStrategy: false }
      })
      client.on('error', () => {})
      await client.connect()
      assert.equal(await client.aclWhoAmI(), 'mailer')
      const id = await client.sendCommand(['ADDJOB', queue, 'body', '0'])
      assert.deepEqual(await client.sendCommand(['GETJOB', 'FROM', queue]), [[queue, id, 'body']])
      assert.equal(await client.sendCommand(['ACKJOB', id]), 1)
      await assert.rejects(client.sendCommand(['ADDJOB', 'other', 'body', '0']),
        /^.*NOPERM No permissions to access a queue$/)
      await assert.rejects(client.configGet('*'),
        /NOPERM User mailer has no permissions to run the 'config\|get' command/)
      await assert.rejects(connected({ RESP, username: 'mailer', password: 'wrong' }), /WRONGPASS/)
    }
  } finally {
    await admin.configSet('user', 'mailer')
    await setPassword('secret', '')
  }
})
