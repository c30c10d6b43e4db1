// ioredis as it comes: HELLO 3, CLIENT SETINFO, an INFO before it calls itself ready.

'use strict'

const assert = require('node:assert/strict')
const test = require('node:test')
const Redis = require('ioredis')

const { HOST, PORT, JOB_ID, waitUntil, next, setPassword, userLine } = require('./support')

function connected (options = {}) {
  return new Redis({ host: HOST, port: PORT, ...options })
}

const client = connected()
test.before(() => next(client, 'ready'))

test('ping and info', async () => {
  assert.equal(await client.ping(), 'PONG')
  assert.match(await client.info(), new RegExp(`^tcp_port:${PORT}\r$`, 'm'))
})

test('settings', async () => {
  assert.equal(await client.config('SET', 'slowlog-max-len', 64), 'OK')
  assert.deepEqual(await client.config('GET', 'slowlog-max-len'), ['slowlog-max-len', '64'])
})

test('produce, consume, acknowledge', async () => {
  const queue = 'main'
  const id = await client.call('ADDJOB', queue, 'body', 0, 'RETRY', 60)
  assert.match(id, JOB_ID)
  assert.deepEqual(await client.call('GETJOB', 'FROM', queue), [[queue, id, 'body']])
  assert.equal(await client.call('WORKING', id), 60)
  assert.equal(await client.call('NACK', id), 1)
  assert.deepEqual(await client.call('GETJOB', 'WITHCOUNTERS', 'FROM', queue),
    [[queue, id, 'body', 'nacks', 1, 'additional-deliveries', 0]])
  assert.equal(await client.call('ACKJOB', id), 1)
  assert.equal(await client.call('SHOW', id), null)
})

test('attributes', async () => {
  const id = await client.call('ADDJOB', 'attributes', 'body', 0, 'ATTR', 'type', 'mail')
  assert.deepEqual(await client.call('GETJOB', 'WITHATTRS', 'WITHCOUNTERS', 'FROM', 'attributes'),
    [['attributes', id, 'body', 'nacks', 0, 'additional-deliveries', 0, 'attrs', ['type', 'mail']]])
  assert.deepEqual((await client.call('SHOW', id)).slice(-2), ['attrs', ['type', 'mail']])
  await assert.rejects(client.call('ADDJOB', 'attributes', 'body', 0, 'ATTR', '', 'x'),
    /ERR ATTR names must have 1 to 32 printable ASCII characters and no spaces/)
  assert.equal(await client.call('ACKJOB', id), 1)
})

test('priorities, and waiting for the end', async () => {
  const plain = await client.call('DISQUE.ADDJOB', 'order', 'plain', 0)
  const urgent = await client.call('DISQUE', 'ADDJOB', 'order', 'urgent', 0, 'PRIORITY', 1)
  assert.deepEqual((await client.call('SHOW', urgent)).slice(-2), ['priority', 1])
  assert.deepEqual(await client.call('GETJOB', 'FROM', 'order'), [['order', urgent, 'urgent']])
  assert.equal(await client.call('ACKJOB', urgent), 1)
  assert.deepEqual(await client.call('WAITJOB', plain, urgent), [[urgent, 'acked']])
  assert.equal(await client.call('WAITJOB', 'TIMEOUT', 20, plain), null)
  assert.deepEqual((await client.call('QSTAT', 'order', 'CLUSTER')).slice(2, 4), ['len', 1])
  await assert.rejects(client.call('ADDJOB', 'order', 'body', 0, 'PRIORITY', 0),
    /ERR PRIORITY must be between 1 and 7/)
})

test('delays and leases', async () => {
  const queue = 'held'
  const id = await client.call('ADDJOB', queue, 'body', 0, 'RETRY', 60)
  assert.deepEqual(await client.call('GETJOB', 'LEASE', 600, 'FROM', queue), [[queue, id, 'body']])
  assert.equal(await client.call('WORKING', id, 'LEASE', 900), 900)
  assert.equal(await client.call('NACK', id, 'DELAY', 300), 1)
  assert.deepEqual(await client.call('JSCAN', 'STATE', 'delayed', 'QUEUE', queue), ['0', [id]])
  await assert.rejects(client.call('NACK', id, 'DELAY', 'soon'), /^ReplyError: ERR DELAY time/)
  assert.equal(await client.call('NACK', id, 'DELAY', 0, 'SILENT'), 1)
  assert.deepEqual(await client.call('GETJOB', 'WITHCOUNTERS', 'FROM', queue),
    [[queue, id, 'body', 'nacks', 1, 'additional-deliveries', 0]])
})

test('dead letters', async () => {
  const queue = 'failing'
  const id = await client.call('ADDJOB', queue, 'body', 0, 'MAXDELIVERIES', 1, 'DEADQUEUE', 'graves')
  assert.equal((await client.call('GETJOB', 'FROM', queue)).length, 1)
  await assert.rejects(client.call('NACK', id, 'DEAD', 'DELAY', 5),
    /^ReplyError: ERR DELAY and DEAD exclude each other/)
  assert.equal(await client.call('NACK', id), 1)
  const [row] = await client.call('GETJOB', 'WITHATTRS', 'FROM', 'graves')
  assert.deepEqual(row.slice(0, 6), ['graves', id, 'body', 'attrs', [], 'dead'])
  assert.deepEqual(row[6].slice(0, 4), ['reason', 'max-deliveries', 'queue', queue])
  assert.equal(await client.call('ACKJOB', id), 1)
})

test('moves', async () => {
  const [id, other] = [await client.call('ADDJOB', 'source', 'a', 0), await client.call('ADDJOB', 'source', 'b', 0)]
  assert.equal(await client.call('MOVEJOB', 'target', id, 'DELAY', 300), 1)
  assert.deepEqual(await client.call('JSCAN', 'STATE', 'delayed', 'QUEUE', 'target'), ['0', [id]])
  assert.equal(await client.call('QMOVE', 'source', 'target'), 1)
  assert.deepEqual(await client.call('QPEEK', 'target', 9), [['target', other, 'b']])
  assert.equal(await client.call('QREDRIVE', 'target'), 0)
  assert.equal(await client.call('QPURGE', 'target', 'COUNT', 5), 1)
  await assert.rejects(client.call('QMOVE', 'source', 'source'),
    /^ReplyError: ERR Source and target must be different queues/)
})

test('nothing there is null', async () => {
  assert.equal(await client.call('GETJOB', 'NOHANG', 'FROM', 'empty'), null)
  assert.equal(await client.call('GETJOB', 'TIMEOUT', 20, 'FROM', 'empty'), null)
  assert.equal(await client.call('QSTAT', 'no-such-queue'), null)
})

test('a blocked consumer gets the job when it comes', async () => {
  const consumer = connected()
  const fetched = consumer.call('GETJOB', 'TIMEOUT', 20_000, 'FROM', 'awaited')
  await waitUntil(async () => /^blocked_clients:1\r$/m.test(await client.info('clients')),
    'the consumer is blocked')
  const id = await client.call('ADDJOB', 'awaited', 'at last', 0)
  assert.deepEqual(await fetched, [['awaited', id, 'at last']])
})

test('a pipeline is answered in order, errors in their places', async () => {
  const answers = await client.pipeline()
    .call('ADDJOB', 'pipelined', 'a', 0)
    .call('SHOW', 'nonsense')
    .call('QLEN', 'pipelined')
    .exec()
  assert.match(answers[0][1], JOB_ID)
  assert.match(answers[1][0].message, /^BADID /)
  assert.deepEqual(answers[2], [null, 1])
})

test('name and password', async () => {
  await setPassword('', 'secret')
  try {
    const named = connected({ password: 'secret', connectionName: 'tester' })
    assert.equal(await named.ping(), 'PONG')
    assert.equal(await named.client('GETNAME'), 'tester')
  } finally {
    await setPassword('secret', '')
  }
})

test('URL with user and password', async () => {
  await setPassword('', 'secret')
  try {
    for (const protocol of [2, 3]) {
      const byUrl = login => new Redis(`redis://${login}@${HOST}:${PORT}/0`, {
        protocol, lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0
      })
      for (const login of ['default:secret', ':secret']) {
        const named = byUrl(login)
        assert.equal(await named.ping(), 'PONG')
        named.disconnect()
      }
      for (const login of ['nobody:secret', 'default:wrong']) {
        const refused = byUrl(login)
        const errors = []
        refused.on('error', error => errors.push(error.message))
        await assert.rejects(refused.ping())
        assert.match(errors.join(), /WRONGPASS/)
        refused.disconnect()
      }
    }
  } finally {
    await setPassword('secret', '')
  }
})

test('users', async () => {
  await setPassword('', 'secret')
  const admin = connected({ password: 'secret' })
  try {
    assert.equal(await admin.config('SET', 'user', userLine('mailer', 'long word', 'produce,consume users-*')), 'OK')
    for (const protocol of [2, 3]) {
      const queue = `users-${protocol}`
      const mailer = new Redis(`redis://mailer:long%20word@${HOST}:${PORT}/0`, {
        protocol, lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0
      })
      assert.equal(await mailer.acl('WHOAMI'), 'mailer')
      const id = await mailer.call('ADDJOB', queue, 'body', 0)
      assert.deepEqual(await mailer.call('GETJOB', 'FROM', queue), [[queue, id, 'body']])
      assert.equal(await mailer.call('ACKJOB', id), 1)
      await assert.rejects(mailer.call('ADDJOB', 'other', 'body', 0),
        /^ReplyError: NOPERM No permissions to access a queue$/)
      await assert.rejects(mailer.call('QPEEK', queue, 1),
        /^ReplyError: NOPERM User mailer has no permissions to run the 'qpeek' command$/)
      mailer.disconnect()
    }
  } finally {
    await admin.config('SET', 'user', 'mailer')
    await setPassword('secret', '')
    admin.disconnect()
  }
})
