// KafkaJS over a secured listener. NODE_PATH says where the package is.
'use strict'

const assert = require('node:assert/strict')
const { readFileSync } = require('node:fs')
const { parseArgs } = require('node:util')
const { Kafka, logLevel } = require('kafkajs')

const PARTITIONS = 2
const RECORDS = 100
const WAIT_MS = 60000

const option = { type: 'string' }
const { values: given } = parseArgs({
  options: {
    bootstrap: option, protocol: option, ca: option, certificate: option, key: option, user: option, password: option,
    topic: option,
  },
})
const usesSasl = given.protocol === 'SASL_SSL'
const { topic } = given

function connect({ password, certificate, key, retries = 5 }) {
  return new Kafka({
    brokers: [given.bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { retries, initialRetryTime: 100 },
    ssl: {
      ca: [readFileSync(given.ca)],
      cert: certificate && readFileSync(certificate),
      key: key && readFileSync(key),
    },
    sasl: usesSasl ? { mechanism: 'scram-sha-512', username: given.user, password } : undefined,
  })
}

const kafka = connect(given)
const numbers = (first, count) => Array.from({ length: count }, (_, place) => String(first + place))

async function until(fact, what) {
  const deadline = Date.now() + WAIT_MS
  while (!(await fact())) {
    assert.ok(Date.now() < deadline, `timed out waiting until ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

async function withClient(client, body) {
  await client.connect()
  try {
    return await body(client)
  } finally {
    await client.disconnect()
  }
}

const withAdmin = (body) => withClient(kafka.admin(), body)

const send = (values) =>
  withClient(kafka.producer({ idempotent: true }), (producer) =>
    producer.send({ topic, acks: -1, messages: values.map((value) => ({ key: value, value })) }))

// A member of a group: reads, commits what it read, and leaves.
async function member(groupId, expected) {
  const found = []
  const next = new Map()
  await withClient(kafka.consumer({ groupId }), async (consumer) => {
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        found.push(message.value.toString())
        next.set(partition, String(BigInt(message.offset) + 1n))
      },
    })
    await until(() => found.length >= expected.length, 'all records are read')
    await consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic, partition, offset })))
  })
  assert.deepEqual(found.sort(), [...expected].sort())
}

const steps = {
  create: () => withAdmin((admin) => admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }] })),

  describe: () => withAdmin(async (admin) => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.equal(topics[0].partitions.length, PARTITIONS)
  }),

  produce: () => send(numbers(0, RECORDS)),

  // Its consumer always has a group; this one is another than that of the next step.
  consume: () => member(`${topic}-alone`, numbers(0, RECORDS)),

  group: async () => {
    await member(topic, numbers(0, RECORDS))
    await send(numbers(RECORDS, 1))
    await member(topic, numbers(RECORDS, 1))
    await withAdmin(async (admin) => {
      const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
      assert.equal(partitions.reduce((sum, each) => sum + Number(each.offset), 0), RECORDS + 1)
    })
  },

  delete: () => withAdmin(async (admin) => {
    await admin.deleteTopics({ topics: [topic] })
    await until(async () => !(await admin.listTopics()).includes(topic), 'the topic is gone')
  }),

  refused: async () => {
    const admin = connect({ password: `not ${given.password}`, retries: 0 }).admin()
    const error = await admin.connect().then(() => null, (reason) => reason)
    await admin.disconnect()
    assert.ok(error, 'the client was served')
    if (usesSasl) assert.equal(error.name, 'KafkaJSSASLAuthenticationError')
  },
}

async function main() {
  let failed = false
  for (const [name, body] of Object.entries(steps)) {
    const began = Date.now()
    try {
      await body()
      console.log(`PASS\t${name}`)
    } catch (error) {
      failed = true
      console.log(`FAIL\t${name}`)
      console.error(name, error)
    }
    console.error(`${((Date.now() - began) / 1000).toFixed(1).padStart(5)} s  ${name}`)
  }
  process.exit(failed ? 1 : 0)
}

main()
