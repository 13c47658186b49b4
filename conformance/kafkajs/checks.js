// What a KafkaJS application does: produce, consume in groups, administer.
'use strict'

const { AssignerProtocol, CompressionTypes, ConfigResourceTypes } = require('kafkajs')
const { assert, check, fresh, kafka, main, newTopic, readAll, until, withAdmin, withClient, withProducer } =
  require('./harness')

const numbered = (count) => Array.from({ length: count }, (_, i) => ({ key: `key-${i}`, value: `value-${i}` }))

for (const acks of [0, 1, -1]) {
  check(`produce with acks ${acks} and read it back`, async () => {
    const topic = await newTopic('acks')
    await withProducer({}, (producer) => producer.send({ topic, acks, messages: numbered(20) }))
    const seen = await readAll(topic, 20)
    assert.deepEqual(seen.map((each) => each.value.toString()), numbered(20).map((each) => each.value))
  })
}

check('produce answers the base offset of each batch', async () => {
  const topic = await newTopic('offsets')
  await withProducer({}, async (producer) => {
    const [first] = await producer.send({ topic, messages: numbered(3) })
    const [second] = await producer.send({ topic, messages: numbered(2) })
    assert.deepEqual([first.errorCode, first.baseOffset, second.baseOffset], [0, '0', '3'])
  })
})

check('gzip batches, headers, null keys and null values round-trip', async () => {
  const topic = await newTopic('gzip')
  await withProducer({}, (producer) =>
    producer.send({
      topic,
      compression: CompressionTypes.GZIP,
      messages: [
        { key: 'a', value: 'x'.repeat(5000), headers: { one: '1', many: ['2', '3'] } },
        { key: null, value: 'no key' },
        { key: 'tombstone', value: null },
      ],
    }))
  const [first, second, third] = await readAll(topic, 3)
  assert.equal(first.value.length, 5000)
  assert.equal(first.headers.one.toString(), '1')
  assert.deepEqual(first.headers.many.map(String), ['2', '3'])
  assert.equal(second.key, null)
  assert.equal(third.value, null)
})

check('an idempotent producer sends in order and once', async () => {
  const topic = await newTopic('idempotent')
  await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
    for (let i = 0; i < 20; i++) await producer.send({ topic, messages: [{ value: `${i}` }] })
  })
  const seen = await readAll(topic, 20)
  assert.deepEqual(seen.map((each) => Number(each.value)), Array.from({ length: 20 }, (_, i) => i))
})

check('sendBatch writes several topics at once', async () => {
  const [one, two] = [await newTopic('batch'), await newTopic('batch')]
  await withProducer({}, (producer) =>
    producer.sendBatch({ topicMessages: [{ topic: one, messages: numbered(5) }, { topic: two, messages: numbered(7) }] }))
  assert.equal((await readAll(one, 5)).length, 5)
  assert.equal((await readAll(two, 7)).length, 7)
})

check('keys choose the partition, and the same key the same one', async () => {
  const topic = await newTopic('keys', 4)
  await withProducer({}, async (producer) => {
    await producer.send({ topic, messages: numbered(50) })
    await producer.send({ topic, messages: numbered(50) })
  })
  const partitionOf = {}
  for (const each of await readAll(topic, 100)) {
    partitionOf[each.key] ??= each.partition
    assert.equal(each.partition, partitionOf[each.key])
  }
  assert.ok(new Set(Object.values(partitionOf)).size > 1)
})

check('an unknown topic is created by its first message', async () => {
  const topic = fresh('auto')
  await withProducer({ allowAutoTopicCreation: true }, (producer) => producer.send({ topic, messages: numbered(1) }))
  assert.equal((await readAll(topic, 1)).length, 1)
})

check('a message over max.message.bytes is refused', async () => {
  const topic = await newTopic('large', 1, [{ name: 'max.message.bytes', value: '1000' }])
  await withProducer({ retry: { retries: 0 } }, (producer) =>
    assert.rejects(producer.send({ topic, messages: [{ value: 'x'.repeat(5000) }] }), /MESSAGE_TOO_LARGE|larger than/i))
})

check('eachBatch shows the high watermark and resolves offsets', async () => {
  const topic = await newTopic('each-batch')
  await withProducer({}, (producer) => producer.send({ topic, messages: numbered(30) }))
  let read = 0
  let highWatermark = null
  await withClient(kafka.consumer({ groupId: fresh('group') }), async (consumer) => {
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
        for (const message of batch.messages) {
          read += 1
          resolveOffset(message.offset)
        }
        highWatermark = batch.highWatermark
        await heartbeat()
      },
    })
    await until(() => read === 30, 'all are read')
  })
  assert.equal(highWatermark, '30')
})

check('seek moves a consumer, pause and resume hold it', async () => {
  const topic = await newTopic('seek')
  await withProducer({}, (producer) => producer.send({ topic, messages: numbered(10) }))
  const offsets = []
  await withClient(kafka.consumer({ groupId: fresh('group') }), async (consumer) => {
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({ eachMessage: async ({ message }) => offsets.push(Number(message.offset)) })
    await until(() => offsets.length === 10, 'all are read')
    consumer.pause([{ topic }])
    consumer.seek({ topic, partition: 0, offset: '7' })
    assert.equal(offsets.length, 10)
    consumer.resume([{ topic }])
    await until(() => offsets.length === 13, 'the last three are read again')
  })
  assert.deepEqual(offsets.slice(10), [7, 8, 9])
})

check('two members share the partitions, and one inherits all when the other leaves', async () => {
  const topic = await newTopic('group', 4)
  const groupId = fresh('group')
  const assigned = {}
  const member = async (name) => {
    const consumer = kafka.consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 500, rebalanceTimeout: 10000 })
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { assigned[name] = payload.memberAssignment[topic] || [] })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({ eachMessage: async () => {} })
    return consumer
  }
  const first = await member('first')
  await until(() => assigned.first?.length === 4, 'the first member has all partitions')
  const second = await member('second')
  await until(() => assigned.first.length === 2 && assigned.second?.length === 2, 'each has two')
  assert.deepEqual([...assigned.first, ...assigned.second].sort(), [0, 1, 2, 3])
  await second.disconnect()
  await until(() => assigned.first.length === 4, 'the first has all again')
  await first.disconnect()
})

check('committed offsets are where the next member of the group begins', async () => {
  const topic = await newTopic('commit')
  const groupId = fresh('group')
  await withProducer({}, (producer) => producer.send({ topic, messages: numbered(10) }))
  const read = async (limit) => {
    const offsets = []
    await withClient(kafka.consumer({ groupId }), async (consumer) => {
      await consumer.subscribe({ topic, fromBeginning: true })
      await consumer.run({
        autoCommit: false,
        eachMessage: async ({ message }) => { offsets.push(Number(message.offset)) },
      })
      await until(() => offsets.length >= limit, `${limit} are read`)
      await consumer.commitOffsets([{ topic, partition: 0, offset: '6', metadata: 'half way' }])
    })
    return offsets
  }
  assert.equal((await read(10))[0], 0)
  const [{ partitions: [committed] }] = await withAdmin((admin) => admin.fetchOffsets({ groupId, topics: [topic] }))
  assert.deepEqual([committed.offset, committed.metadata], ['6', 'half way'])
  assert.equal((await read(4))[0], 6)
})

check('admin: topics are created, listed, described and deleted', async () => {
  const topic = await newTopic('admin', 3)
  await withAdmin(async (admin) => {
    assert.equal(await admin.createTopics({ topics: [{ topic }] }), false)
    assert.ok((await admin.listTopics()).includes(topic))
    const { topics: [described] } = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.deepEqual(described.partitions.map((each) => each.partitionId).sort(), [0, 1, 2])
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    await until(async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === 5, 'there are five')
    await admin.deleteTopics({ topics: [topic] })
    await until(async () => !(await admin.listTopics()).includes(topic), 'the topic is gone')
  })
})

check('admin: offsets of a topic, also by time', async () => {
  const topic = await newTopic('by-time')
  await withProducer({}, (producer) =>
    producer.send({ topic, messages: [1000, 2000, 3000].map((timestamp) => ({ value: 'x', timestamp: `${timestamp}` })) }))
  await withAdmin(async (admin) => {
    const [{ low, high }] = await admin.fetchTopicOffsets(topic)
    assert.deepEqual([low, high], ['0', '3'])
    const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, 1500)
    assert.equal(offset, '1')
  })
})

check('admin: records are deleted up to an offset', async () => {
  const topic = await newTopic('delete-records')
  await withProducer({}, (producer) => producer.send({ topic, messages: numbered(10) }))
  await withAdmin(async (admin) => {
    await admin.fetchTopicOffsets(topic) // KafkaJS looks for the leader only among topics it has met
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '4' }] })
    assert.equal((await admin.fetchTopicOffsets(topic))[0].low, '4')
  })
  assert.equal((await readAll(topic, 6))[0].offset, '4')
})

check('admin: configs are described and altered', async () => {
  const topic = await newTopic('configs', 1, [{ name: 'retention.ms', value: '3600000' }])
  const valueOf = async (admin, name) => {
    const { resources: [resource] } = await admin.describeConfigs({
      includeSynonyms: true,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: [name] }],
    })
    return resource.configEntries.find((each) => each.configName === name).configValue
  }
  await withAdmin(async (admin) => {
    assert.equal(await valueOf(admin, 'retention.ms'), '3600000')
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'retention.ms', value: '7200000' }] }],
    })
    await until(async () => (await valueOf(admin, 'retention.ms')) === '7200000', 'the new value is shown')
  })
})

check('admin: groups are listed, described, their offsets set and reset, and deleted', async () => {
  const topic = await newTopic('groups')
  const groupId = fresh('group')
  await withProducer({}, (producer) => producer.send({ topic, messages: numbered(5) }))
  await withAdmin(async (admin) => {
    await withClient(kafka.consumer({ groupId }), async (consumer) => {
      let read = 0
      await consumer.subscribe({ topic, fromBeginning: true })
      await consumer.run({ eachMessage: async () => { read += 1 } })
      await until(() => read === 5, 'all are read')
      const { groups: [group] } = await admin.describeGroups([groupId])
      assert.deepEqual([group.state, group.protocolType, group.members.length], ['Stable', 'consumer', 1])
      AssignerProtocol.MemberAssignment.decode(group.members[0].memberAssignment)
    })
    assert.ok((await admin.listGroups()).groups.some((each) => each.groupId === groupId))
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '2' }] })
    assert.equal((await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions[0].offset, '2')
    await admin.resetOffsets({ groupId, topic, earliest: true })
    const [{ partitions: [reset] }] = await admin.fetchOffsets({ groupId, topics: [topic], resolveOffsets: true })
    assert.equal(reset.offset, '0')
    await admin.deleteGroups([groupId])
    assert.ok(!(await admin.listGroups()).groups.some((each) => each.groupId === groupId))
  })
})

check('admin: the cluster has a controller and this broker', async () => {
  const { brokers, controller, clusterId } = await withAdmin((admin) => admin.describeCluster())
  assert.ok(brokers.some((each) => each.nodeId === controller))
  assert.ok(clusterId.length > 0)
})

// Whole segments of these topics hold no records any more. KafkaJS has gzip built in, and snappy from another package.
const compacted = (process.env.COMPACTED_TOPICS || '').split(',')
const left = (process.env.COMPACTED_RECORDS || '').split(';')
for (const [place, topic] of compacted.entries()) {
  if (!topic || /-(lz4|zstd)$/.test(topic)) continue // no codec for these without native code
  check(`${topic} is read to its end`, async () => {
    const seen = await readAll(topic, left[place].split(',').length)
    assert.equal(seen.map((each) => `${each.offset}:${each.key}`).join(','), left[place])
  })
}

main()
