// disque-eventemitter: a consumer as a stream of events, on top of disqueue-node.

'use strict'

const assert = require('node:assert/strict')
const test = require('node:test')
const DisqueEventEmitter = require('disque-eventemitter')
const Disqueue = require('disqueue-node')

const { HOST, PORT, PATIENCE_MS, waitUntil, next, call } = require('./support')

const address = { host: HOST, port: PORT }
let producer

test.before(async () => {
  producer = new Disqueue(address)
  await next(producer, 'ready')
})

test('each job is an event, and its acknowledgement removes it', async () => {
  const queue = 'events'
  const ids = []
  for (const job of ['1', '2', '3']) ids.push(await call(producer, 'addJob', { queue, job }))
  const consumer = new DisqueEventEmitter(address, queue)
  const bodies = []
  consumer.on('job', async (job, done) => {
    assert.equal(await call(consumer, 'ack', job), 1)
    bodies.push(job.body)
    done()
  })
  await waitUntil(() => bodies.length === 3, 'three jobs arrive')
  assert.deepEqual(bodies, ['1', '2', '3'])
  for (const id of ids) assert.equal(await call(producer, 'show', id), null)

  await call(producer, 'addJob', { queue, job: 'while it waits' })
  await waitUntil(() => bodies.length === 4, 'the waiting consumer is served')
})

test('a job given back arrives again with its count', async () => {
  const queue = 'given-back'
  const jobId = await call(producer, 'addJob', { queue, job: 'hard' })
  const consumer = new DisqueEventEmitter(address, queue, { withCounters: true })
  const nacks = []
  consumer.on('job', async (job, done) => {
    assert.equal(job.jobId, jobId)
    nacks.push(job.nacks)
    await call(consumer, nacks.length < 3 ? 'nack' : 'ack', job)
    done()
  })
  await waitUntil(() => nacks.length === 3, 'the job arrives three times')
  assert.deepEqual(nacks, [0, 1, 2])
})

test('no more jobs are fetched than may run at once', async () => {
  const queue = 'few-at-once'
  for (let n = 0; n < 6; n++) await call(producer, 'addJob', { queue, job: String(n) })
  const consumer = new DisqueEventEmitter(address, queue, { concurrency: 2 })
  let running = 0
  let most = 0
  let finished = 0
  consumer.on('job', async (job, done) => {
    most = Math.max(most, ++running)
    await call(consumer, 'ack', job)
    running--
    finished++
    done()
  })
  await waitUntil(() => finished === 6, `all jobs are done within ${PATIENCE_MS} ms`)
  assert.ok(most <= 2, `${most} at once`)
})
