// KafkaJS: transactions. NODE_PATH says where the package is.
'use strict'

const assert = require('node:assert/strict')
const { parseArgs } = require('node:util')
const { Kafka, logLevel } = require('kafkajs')

const VALUES = 3 // of a transaction, in each topic
const END = 'end'
const WAIT_MS = 60000

const option = { type: 'string' }
const { values: given } = parseArgs({
  options: { bootstrap: option, first: option, second: option, id: option, group: option },
})
const topics = [given.first, given.second]
const kafka = new Kafka({ brokers: [given.bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 8, initialRetryTime: 100 } })
const valuesOf = (word) => Array.from({ length: VALUES }, (_, number) => `${word}-${number}`)

async function transactional() {
  const opened = kafka.producer({ transactionalId: given.id, idempotent: true, maxInFlightRequests: 1 })
  await opened.connect()
  return opened
}

let producer

async function transact(word, isCommit) {
  const transaction = await producer.transaction()
  for (const value of valuesOf(word)) {
    for (const topic of topics) await transaction.send({ topic, messages: [{ value }] })
  }
  await (isCommit ? transaction.commit() : transaction.abort())
}

async function sendEnd() {
  const plain = kafka.producer()
  await plain.connect()
  for (const topic of topics) await plain.send({ topic, messages: [{ value: END }] })
  await plain.disconnect()
}

async function read(topic, isCommitted) {
  const consumer = kafka.consumer({ groupId: `${given.group}-${topic}-${isCommitted}`, readUncommitted: !isCommitted })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const found = []
  let timer
  await new Promise((resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no end: ${found}`)), WAIT_MS)
    consumer
      .run({
        eachMessage: async ({ message }) => {
          const value = message.value.toString()
          if (value === END) resolve()
          else found.push(value)
        },
      })
      .catch(reject)
  }).finally(() => clearTimeout(timer))
  await consumer.disconnect()
  return found
}

async function checkRead(isCommitted) {
  const words = isCommitted ? ['committed', 'again'] : ['committed', 'aborted', 'again']
  for (const topic of topics) assert.deepEqual(await read(topic, isCommitted), words.flatMap(valuesOf))
}

async function sendOffsets(offset, isCommit) {
  const transaction = await producer.transaction()
  await transaction.send({ topic: given.second, messages: [{ value: 'with offsets' }] })
  await transaction.sendOffsets({
    consumerGroupId: given.group,
    topics: [{ topic: given.first, partitions: [{ partition: 0, offset: String(offset) }] }],
  })
  await (isCommit ? transaction.commit() : transaction.abort())
}

async function committedOffset() {
  const admin = kafka.admin()
  await admin.connect()
  const found = await admin.fetchOffsets({ groupId: given.group, topics: [given.first] })
  await admin.disconnect()
  return Number(found[0].partitions[0].offset)
}

async function checkOffsets() {
  await sendOffsets(2, true)
  assert.equal(await committedOffset(), 2)
  await sendOffsets(5, false)
  assert.equal(await committedOffset(), 2)
  await sendOffsets(3, true)
  assert.equal(await committedOffset(), 3)
}

async function checkFenced() {
  const transaction = await producer.transaction()
  await transaction.send({ topic: given.second, messages: [{ value: 'fenced' }] })
  const second = await transactional()
  // A producer of KafkaJS asks for its id with its first transaction.
  const other = await second.transaction()
  await other.abort()
  await assert.rejects(transaction.commit(), /epoch|fenced/i)
  producer = second
}

async function checkMisuse() {
  const transaction = await producer.transaction()
  await transaction.send({ topic: given.first, messages: [{ value: 'once' }] })
  await transaction.commit()
  await assert.rejects(transaction.send({ topic: given.first, messages: [{ value: 'outside' }] }))
  await assert.rejects(transaction.commit())
  await transact('after misuse', true)
}

const STEPS = {
  commit: () => transact('committed', true),
  abort: async () => {
    await transact('aborted', false)
    await transact('again', true)
    await sendEnd()
  },
  committed: () => checkRead(true),
  uncommitted: () => checkRead(false),
  offsets: checkOffsets,
  fenced: checkFenced,
  misuse: checkMisuse,
}

async function main() {
  producer = await transactional()
  for (const [name, body] of Object.entries(STEPS)) {
    let verdict = 'PASS'
    try {
      await body()
    } catch (error) {
      console.error(name, error)
      verdict = 'FAIL'
    }
    process.stdout.write(`${verdict}\t${name}\n`)
  }
  process.exit(0)
}

main()
