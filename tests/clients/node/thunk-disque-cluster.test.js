// thunk-disque on three nodes: it makes them meet, and sends what concerns a job to the node
// in whose ID the job's ID begins.

'use strict'

const assert = require('node:assert/strict')
const test = require('node:test')
const disque = require('thunk-disque')

const { HOST, PORTS, waitUntil } = require('./support')

const alone = PORTS.map(port => disque.createClient(port, HOST, { usePromise: true }))
const addresses = PORTS.map(port => `${HOST}:${port}`)
const client = disque.createClient(addresses, { usePromise: true, autoMeet: true })
// A connection that ends is reported, too; the library goes on with the others.
for (const one of [client, ...alone]) one.on('error', () => {})

test('it makes the nodes meet', async () => {
  for (const one of alone) {
    await waitUntil(async () => {
      const [, , ...nodes] = await one.hello()
      return nodes.length === 3 && nodes.every(node => node[3] === '1') &&
        /reachable_nodes:2\r\n/.test(await one.cluster('info'))
    }, 'all nodes have met')
  }
})

test('a job is asked for where its ID says', async () => {
  for (const one of alone) {
    const id = await one.addjob('routed', 'body', 5000, 'replicate', 1, 'retry', 60)
    const others = alone.filter(other => other !== one)
    for (const other of others) assert.equal(await other.show(id), null)
    assert.equal((await client.show(id)).state, 'queued')
    assert.equal(await client.dequeue(id), 1)
    assert.equal(await client.enqueue(id), 1)
    assert.equal(await client.nack(id), 0)
    assert.equal(await client.ackjob(id), 1)
    assert.equal(await one.show(id), null)
  }
})

test('a job is fetched on any node and acknowledged on its own', async () => {
  const ids = []
  for (const one of alone) {
    ids.push(await one.addjob('fetched', 'body', 5000, 'replicate', 3, 'retry', 60))
  }
  const left = new Set(ids)
  while (left.size > 0) {
    for (const [, id] of await client.getjob('timeout', 5000, 'from', 'fetched')) {
      assert.equal(await client.ackjob(id), 1)
      left.delete(id)
    }
  }
  for (const id of ids) {
    for (const one of alone) {
      await waitUntil(async () => await one.show(id) === null, 'the job has left all nodes')
    }
  }
})

test('the jobs of a node that died are found on the others', async () => {
  const id = await alone[2].addjob('survivor', 'body', 5000, 'replicate', 3, 'retry', 1)
  process.kill(Number((await alone[2].info('server')).process_id), 'SIGKILL')
  for (const one of alone.slice(0, 2)) {
    await waitUntil(async () => {
      const [, , ...nodes] = await one.hello()
      return nodes.filter(node => node[3] === '100').length === 1
    }, 'the node is failing')
  }
  assert.equal((await client.show(id)).body, 'body')
  assert.deepEqual(await client.getjob('timeout', 5000, 'from', 'survivor'),
    [['survivor', id, 'body']])
  assert.equal(await client.ackjob(id), 1)
})
