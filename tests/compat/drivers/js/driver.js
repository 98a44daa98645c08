// kafkajs behind lines of JSON: one request a line on stdin, one answer a line on stdout (drivers/client.py).
const readline = require('node:readline')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel, Partitioners } = require('kafkajs')
const zstd = require('@bokuweb/zstd-wasm')
const lz4 = require('lz4js')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})

const CODECS = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }
const TOPIC = 2
const kafka = new Kafka({ clientId: 'kafkajs', brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
const members = new Map()
let admin = null

const text = value => (value === null || value === undefined ? null : value.toString())

function describe(partition, message) {
  const headers = []
  for (const [key, value] of Object.entries(message.headers || {})) {
    for (const one of Array.isArray(value) ? value : [value]) headers.push([key, text(one)])
  }
  return {
    partition,
    offset: Number(message.offset),
    timestamp: Number(message.timestamp),
    key: text(message.key),
    value: text(message.value),
    headers,
  }
}

async function produce(r) {
  const producer = kafka.producer({
    idempotent: r.idempotent,
    maxInFlightRequests: 1,
    createPartitioner: Partitioners.DefaultPartitioner,
  })
  await producer.connect()
  try {
    const messages = r.records.map(one => ({
      key: one.key,
      value: one.value,
      partition: one.partition === null ? undefined : one.partition,
      timestamp: one.timestamp === null ? undefined : String(one.timestamp),
      headers: Object.fromEntries(one.headers.map(([key, value]) => [key, value === null ? Buffer.alloc(0) : value])),
    }))
    const acks = r.acks === 'all' ? -1 : Number(r.acks)
    const answers = await producer.send({ topic: r.topic, acks, compression: CODECS[r.codec], messages })
    // One answer a partition, with the first offset: the records follow one another.
    const next = new Map(answers.map(one => [one.partition, Number(one.baseOffset)]))
    return r.records.map(one => {
      const partition = one.partition === null ? answers[0].partition : one.partition
      if (acks === 0) return [partition, -1]
      const offset = next.get(partition)
      next.set(partition, offset + 1)
      return [partition, offset]
    })
  } finally {
    await producer.disconnect()
  }
}

const producers = new Map()

async function initTransactions(r) {
  const producer = kafka.producer({
    transactionalId: r.id,
    idempotent: true,
    maxInFlightRequests: 1,
    createPartitioner: Partitioners.DefaultPartitioner,
  })
  await producer.connect()
  producers.set(r.producer, { producer, open: null })
  // kafkajs asks for its producer id with its first transaction: this one is over at once.
  await (await producer.transaction()).abort()
}

async function inTransaction(r) {
  const one = producers.get(r.producer)
  if (one.open === null) one.open = await one.producer.transaction()
  return one.open
}

async function sendInTransaction(r) {
  const open = await inTransaction(r)
  await open.send({ topic: r.topic, messages: r.values.map(value => ({ value, partition: r.partition })) })
}

async function sendOffset(r) {
  const topics = [{ topic: r.topic, partitions: [{ partition: 0, offset: String(r.offset) }] }]
  await (await inTransaction(r)).sendOffsets({ consumerGroupId: r.group, topics })
}

async function endTransaction(r) {
  const one = producers.get(r.producer)
  const open = one.open
  one.open = null
  await (r.commit ? open.commit() : open.abort())
}

async function fetch(r) {
  const consumer = kafka.consumer({
    groupId: `fetch-${process.pid}-${Date.now()}`,
    readUncommitted: !r.committed,
  })
  let offset = r.offset
  if (r.timestamp !== null && r.timestamp !== undefined) {
    const found = await (await administrator()).fetchTopicOffsetsByTimestamp(r.topic, r.timestamp)
    offset = found.find(one => one.partition === r.partition).offset
  }
  const records = []
  await consumer.connect()
  await consumer.subscribe({ topics: [r.topic], fromBeginning: true })
  await new Promise((resolve, reject) => {
    const late = setTimeout(resolve, 15000)
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (partition === r.partition) records.push(describe(partition, message))
        if (records.length >= r.count) {
          clearTimeout(late)
          resolve()
        }
      },
    }).catch(reject)
    if (offset !== null && offset !== undefined) {
      consumer.seek({ topic: r.topic, partition: r.partition, offset: String(offset) })
    }
  })
  await consumer.disconnect()
  return records
}

class Member {
  constructor() {
    this.records = []
    this.assignment = []
    this.rebalances = 0
    this.positions = new Map()
  }

  async join(r) {
    this.topic = r.topic
    this.consumer = kafka.consumer({ groupId: r.group, sessionTimeout: 10000, heartbeatInterval: 500 })
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.rebalances += 1
      this.assignment = (payload.memberAssignment[r.topic] || []).slice().sort((a, b) => a - b)
    })
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [r.topic], fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        this.records.push(describe(partition, message))
        this.positions.set(partition, Number(message.offset) + 1)
      },
    })
  }

  async commit() {
    const offsets = [...this.positions].filter(([partition]) => this.assignment.includes(partition))
    await this.consumer.commitOffsets(
      offsets.map(([partition, offset]) => ({ topic: this.topic, partition, offset: String(offset) })),
    )
  }
}

async function administrator() {
  if (admin === null) {
    admin = kafka.admin()
    await admin.connect()
  }
  return admin
}

const HANDLERS = {
  produce,
  fetch,
  txn_init: initTransactions,
  txn_send: sendInTransaction,
  txn_offset: sendOffset,
  txn_end: endTransaction,
  join: async r => {
    const member = new Member()
    members.set(r.member, member)
    await member.join(r)
  },
  state: async r => {
    const { assignment, records, rebalances } = members.get(r.member)
    return { assignment, records, rebalances }
  },
  commit: async r => members.get(r.member).commit(),
  leave: async r => {
    await members.get(r.member).consumer.disconnect()
    members.delete(r.member)
  },
  create_topic: async r => {
    const configEntries = Object.entries(r.configs).map(([name, value]) => ({ name, value }))
    const topics = [{ topic: r.topic, numPartitions: r.partitions, replicationFactor: 1, configEntries }]
    const made = await (await administrator()).createTopics({ topics, waitForLeaders: true })
    if (!made) throw new Error('TOPIC_ALREADY_EXISTS: the topic was there')
  },
  list_topics: async () => (await administrator()).listTopics(),
  describe_topic: async r => {
    const { topics } = await (await administrator()).fetchTopicMetadata({ topics: [r.topic] })
    return { partitions: topics[0].partitions.length, leader: topics[0].partitions[0].leader }
  },
  create_partitions: async r => {
    await (await administrator()).createPartitions({ topicPartitions: [{ topic: r.topic, count: r.total }] })
  },
  delete_topic: async r => (await administrator()).deleteTopics({ topics: [r.topic] }),
  alter_topic_config: async r => {
    const configEntries = Object.entries(r.configs).map(([name, value]) => ({ name, value }))
    await (await administrator()).alterConfigs({ resources: [{ type: TOPIC, name: r.topic, configEntries }] })
  },
  describe_topic_config: async r => {
    const { resources } = await (await administrator()).describeConfigs({
      includeSynonyms: false,
      resources: [{ type: TOPIC, name: r.topic }],
    })
    return Object.fromEntries(resources[0].configEntries.map(one => [one.configName, one.configValue]))
  },
  list_groups: async () => (await (await administrator()).listGroups()).groups.map(one => one.groupId),
  describe_group: async r => {
    const { groups } = await (await administrator()).describeGroups([r.group])
    return { state: groups[0].state, members: groups[0].members.length }
  },
  group_offsets: async r => {
    const found = await (await administrator()).fetchOffsets({ groupId: r.group })
    const partitions = found.flatMap(one => one.partitions)
    return Object.fromEntries(partitions.map(one => [String(one.partition), Number(one.offset)]))
  },
  delete_group: async r => {
    await (await administrator()).deleteGroups([r.group])
  },
  delete_records: async r => {
    // kafkajs looks the leader up in what it knows, and asks nobody: this makes it know.
    await (await administrator()).fetchTopicOffsets(r.topic)
    const partitions = [{ partition: r.partition, offset: String(r.before) }]
    await (await administrator()).deleteTopicRecords({ topic: r.topic, partitions })
    const found = await (await administrator()).fetchTopicOffsets(r.topic)
    return Number(found.find(one => one.partition === r.partition).low)
  },
  offsets: async r => {
    const found = (await (await administrator()).fetchTopicOffsets(r.topic)).find(one => one.partition === r.partition)
    return { earliest: Number(found.low), latest: Number(found.high) }
  },
}

async function main() {
  await zstd.init()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const r = JSON.parse(line)
    let answer
    try {
      const result = await HANDLERS[r.op](r)
      answer = { ok: result === undefined ? null : result }
    } catch (error) {
      answer = { error: `${error.type || error.name}: ${error.message}` }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  for (const member of members.values()) await member.consumer.disconnect()
  process.exit(0)
}

main()
