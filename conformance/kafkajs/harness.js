// A named list of checks, run one after another; each prints PASS or FAIL and its name.
'use strict'

const assert = require('node:assert/strict')
const { randomUUID } = require('node:crypto')
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const WAIT_MS = 30000
const checks = []

const kafka = new Kafka({
  clientId: 'zhumq-conformance',
  brokers: [process.env.BOOTSTRAP],
  logLevel: logLevel.ERROR,
  retry: { retries: 5, initialRetryTime: 100 },
})

const check = (name, body) => checks.push({ name, body })
const fresh = (word) => `kafkajs-${word}-${randomUUID().slice(0, 8)}`

// Wait for a fact, with a deadline.
async function until(fact, what) {
  const deadline = Date.now() + WAIT_MS
  while (!(await fact())) {
    assert.ok(Date.now() < deadline, `timed out waiting until ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
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
const withProducer = (options, body) => withClient(kafka.producer(options), body)

async function newTopic(word, numPartitions = 1, configEntries = []) {
  const topic = fresh(word)
  await withAdmin((admin) =>
    admin.createTopics({ topics: [{ topic, numPartitions, configEntries }], waitForLeaders: true }))
  return topic
}

// Read `count` messages from the beginning with a new group; returns them with their partition.
async function readAll(topic, count, options = {}) {
  const seen = []
  await withClient(kafka.consumer({ groupId: fresh('reader'), ...options }), async (consumer) => {
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({ eachMessage: async ({ partition, message }) => seen.push({ partition, ...message }) })
    await until(() => seen.length >= count, `${count} messages are read`)
  })
  return seen
}

async function main() {
  let failed = 0
  for (const { name, body } of checks.filter((each) => each.name.includes(process.env.ONLY || ''))) {
    try {
      await body()
      console.log(`PASS\t${name}`)
    } catch (error) {
      failed += 1
      console.log(`FAIL\t${name}`)
      console.error(name, error)
    }
  }
  process.exit(failed ? 1 : 0)
}

module.exports = { assert, check, fresh, kafka, main, newTopic, readAll, until, withAdmin, withClient, withProducer }
