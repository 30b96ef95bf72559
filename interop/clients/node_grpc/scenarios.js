// Plays scenarios as users of RocketMQ's gRPC client for Node.js, all at the same time.
//
// Arguments: the HOST:PORT of a proxy or a broker, the prefix of topics and groups, and the
// scenarios' names. Prints as the programs of the other clients do;
// interop/scenarios/grpc_table.py has the expected facts. The client uses TLS if INTEROP_TLS is
// "true", and trusts the certificates of GRPC_DEFAULT_SSL_ROOTS_FILE_PATH.
"use strict";

const {
  ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer,
} = require("rocketmq-client-nodejs");
const { FilterType, TransactionResolution } = require(
  "rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb");

const TIMEOUT_MS = 150_000;
const WAIT_MS = 40_000;
const PUSH_WAIT_MS = 60_000;
const DEAD_MS = 25_000;
const INVISIBLE_MS = 30_000;
const AWAIT_MS = 5_000;
const REQUEST_TIMEOUT_MS = 10_000;

// The client's log goes to a file of the home folder, and its warnings to stderr, too.
const SILENT = { debug() {}, info() {}, warn() {}, error() {} };

const text = message => message.body.toString();
const view = message => [
  text(message), message.deliveryAttempt, message.tag, message.keys,
  Object.fromEntries(message.properties),
];

/** The bodies and attempts that a listener has seen. */
class Seen {
  all = [];
  #came = () => {};

  put(message) {
    this.all.push([text(message), message.deliveryAttempt]);
    this.#came();
  }

  /** All that came, waiting for this number or until the time is over. */
  wait(count, limitMs = PUSH_WAIT_MS) {
    return new Promise(resolve => {
      const finish = () => {
        clearTimeout(timer);
        resolve([...this.all]);
      };
      const timer = setTimeout(finish, limitMs);
      this.#came = () => {
        if (this.all.length >= count) finish();
      };
      this.#came();
    });
  }
}

/** One scenario, with what it has to shut down. */
class Scenario {
  facts = {};
  ends = [];

  constructor(server, topic) {
    this.topic = topic;
    const [accessKey, accessSecret] = (process.env.INTEROP_ACCOUNT || "").split(" ");
    this.options = {
      endpoints: server,
      namespace: "",
      sslEnabled: process.env.INTEROP_TLS === "true",
      requestTimeout: REQUEST_TIMEOUT_MS,
      logger: SILENT,
      ...(accessKey ? { sessionCredentials: { accessKey, accessSecret } } : {}),
    };
  }

  async started(client) {
    this.ends.push(() => client.shutdown());
    await client.startup();
    return client;
  }

  producer(checker, topic = this.topic) {
    return this.started(new Producer({ ...this.options, topic, checker }));
  }

  message(body, fields = {}) {
    return { topic: this.topic, body: Buffer.from(body), ...fields };
  }

  simpleConsumer(group = this.topic, filter = "*") {
    return this.started(new SimpleConsumer({
      ...this.options, consumerGroup: group, awaitDuration: AWAIT_MS,
      subscriptions: new Map([[this.topic, filter]]),
    }));
  }

  pushConsumer(seen, isGood) {
    return this.started(new PushConsumer({
      ...this.options, consumerGroup: this.topic,
      subscriptions: new Map([[this.topic, "*"]]),
      messageListener: {
        consume(message) {
          seen.put(message);
          return isGood(message.deliveryAttempt) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
        },
      },
    }));
  }

  /** Receive, queue after queue, until this number has come; an error if it does not in time. */
  async receive(consumer, count) {
    const found = [];
    const endMs = Date.now() + WAIT_MS;
    while (found.length < count && Date.now() < endMs) {
      found.push(...await consumer.receive(16, INVISIBLE_MS));
    }
    if (found.length < count) throw new Error(`${found.length} of ${count} messages came`);
    return found;
  }

  // ---- scenarios ----

  /** Received, hidden for longer, received again, acknowledged, and gone. */
  async grpc_simple() {
    const producer = await this.producer();
    await producer.send(this.message("one", {
      tag: "a", keys: ["k1", "k2"], properties: new Map([["colour", "red"]]),
    }));
    const consumer = await this.simpleConsumer();
    const [first] = await this.receive(consumer, 1);
    this.facts.first = view(first);
    await consumer.changeInvisibleDuration(first, 3_000);
    const [again] = await this.receive(consumer, 1);
    this.facts.again = [text(again), again.deliveryAttempt];
    this.facts.same_id = again.messageId === first.messageId;
    await consumer.ack(again);
    this.facts.after_ack = (await consumer.receive(16, INVISIBLE_MS)).length;
  }

  async grpc_simple_in_pages() {
    const producer = await this.producer();
    for (let number = 10; number < 50; number++) {
      await producer.send(this.message(String(number)));
    }
    const consumer = await this.simpleConsumer();
    const found = await this.receive(consumer, 40);
    this.facts.received = found.map(text).sort();
    for (const message of found) await consumer.ack(message);
    const other = await this.simpleConsumer(`${this.topic}_other`);
    this.facts.another_group = (await this.receive(other, 40)).length;
  }

  async grpc_push() {
    const seen = new Seen();
    await this.pushConsumer(seen, () => true);
    const producer = await this.producer();
    for (let number = 0; number < 8; number++) await producer.send(this.message(String(number)));
    this.facts.received = (await seen.wait(8)).sort();
  }

  async grpc_push_retry() {
    const seen = new Seen();
    await (await this.producer()).send(this.message("again"));
    await this.pushConsumer(seen, attempt => attempt === 3);
    this.facts.received = await seen.wait(3);
  }

  async grpc_push_dead() {
    const seen = new Seen();
    await (await this.producer()).send(this.message("dead"));
    await this.pushConsumer(seen, () => false);
    this.facts.received = await seen.wait(2);
    this.facts.more = (await seen.wait(3, DEAD_MS)).length - 2;
  }

  async grpc_fifo() {
    const producer = await this.producer();
    for (let number = 0; number < 6; number++) {
      await producer.send(this.message(String(number), { messageGroup: "one group" }));
    }
    const seen = new Seen();
    await this.pushConsumer(seen, () => true);
    this.facts.received = await seen.wait(6);
  }

  /** What is received is sent to another topic as it is, and received there. */
  async grpc_forward() {
    const producer = await this.producer();
    await producer.send(this.message("one", {
      tag: "a", keys: ["k"], properties: new Map([["colour", "red"]]),
    }));
    const consumer = await this.simpleConsumer();
    const [first] = await this.receive(consumer, 1);
    await producer.send({
      topic: `${this.topic}_next`, body: first.body, tag: first.tag, keys: first.keys,
      properties: first.properties,
    });
    await consumer.ack(first);
    await consumer.subscribe(`${this.topic}_next`, FilterExpression.SUB_ALL);
    const [second] = await this.receive(consumer, 1);
    this.facts.received = [view(first), view(second)];
    await consumer.ack(second);
    this.facts.after_ack = (await consumer.receive(16, INVISIBLE_MS)).length;
  }

  async grpc_delay() {
    const due = new Date(Date.now() + 4_000);
    await (await this.producer()).send(this.message("late", { deliveryTimestamp: due }));
    const found = await this.receive(await this.simpleConsumer(), 1);
    this.facts.received = found.map(text);
    // 5.x rounds to its timer's precision, a second.
    this.facts.early = Date.now() < due.getTime() - 1_000;
    this.facts.timestamp = found[0].deliveryTimestamp?.getTime() === due.getTime();
  }

  async grpc_recall() {
    const producer = await this.producer();
    const deliveryTimestamp = new Date(Date.now() + 12_000);
    const receipt = await producer.send(this.message("recalled", { deliveryTimestamp }));
    await producer.send(this.message("kept", { deliveryTimestamp }));
    const recalled = await producer.recallMessage(this.topic, receipt.recallHandle);
    this.facts.same_id = recalled.messageId === receipt.messageId;
    const consumer = await this.simpleConsumer();
    const found = await this.receive(consumer, 1);
    found.push(...await consumer.receive(16, INVISIBLE_MS));
    this.facts.received = found.map(text);
  }

  async grpc_transaction() {
    const checked = new Set();
    const producer = await this.producer({
      async check(message) {
        checked.add(text(message));
        return text(message) === "asked"
          ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
      },
    });
    for (const body of ["committed", "rolled back", "asked", "asked in vain"]) {
      const transaction = producer.beginTransaction();
      await producer.send(this.message(body), transaction);
      if (body === "committed") await transaction.commit();
      else if (body === "rolled back") await transaction.rollback();
    }
    const consumer = await this.simpleConsumer();
    const found = await this.receive(consumer, 2);
    for (const message of found) await consumer.ack(message);
    const endMs = Date.now() + WAIT_MS / 2;
    while (checked.size < 2 && Date.now() < endMs) {
      found.push(...await consumer.receive(16, INVISIBLE_MS));
    }
    this.facts.received = found.map(text).sort();
    this.facts.checked = [...checked].sort();
  }

  async grpc_filters() {
    const producer = await this.producer();
    for (const tag of ["a", "b", "c"]) {
      await producer.send(this.message(tag, { tag, properties: new Map([["size", tag]]) }));
    }
    const byTag = await this.simpleConsumer(`${this.topic}_tag`, "a || c");
    this.facts.by_tag = (await this.receive(byTag, 2)).map(text).sort();
    const sql = new FilterExpression("size = 'b'", FilterType.SQL);
    const bySql = await this.simpleConsumer(`${this.topic}_sql`, sql);
    this.facts.by_sql = (await this.receive(bySql, 1)).map(text).sort();
  }

  /** Messages that wait are received by priority, the highest first. */
  async grpc_priority() {
    const producer = await this.producer();
    // Without 0, which this client takes for no priority (PublishingMessage).
    for (const priority of [1, 3, 2]) {
      await producer.send(this.message(String(priority), { priority }));
    }
    const consumer = await this.simpleConsumer();
    const found = [];
    for (let number = 0; number < 3; number++) {
      found.push(...await consumer.receive(1, INVISIBLE_MS));
    }
    this.facts.received = found.map(message => [text(message), message.priority]);
  }

  /** What a proxy refuses, some of it by the broker's answer. */
  async grpc_refused() {
    const { facts } = this;
    facts.unknown_topic = await codeOf(() => this.producer(undefined, `${this.topic}_unknown`));
    const producer = await this.producer();
    const wrong = this.message("x", { messageGroup: "a" });
    facts.wrong_type = await codeOf(() => producer.send(wrong));
    await producer.send(this.message("one"));
    const consumer = await this.simpleConsumer();
    const [one] = await this.receive(consumer, 1);
    facts.acked = await codeOf(() => consumer.ack(one));
    facts.acked_again = await codeOf(() => consumer.ack(one));
    facts.too_short = await codeOf(() => consumer.receive(1, 1_000));
    const bad = new FilterExpression("a = ", FilterType.SQL);
    const filtered = await this.simpleConsumer(`${this.topic}_bad`, bad);
    facts.bad_filter = await codeOf(() => filtered.receive(1, INVISIBLE_MS));
    facts.bad_handle = await codeOf(() => producer.recallMessage(this.topic, "AAAA"));
  }
}

async function codeOf(step) {
  try {
    await step();
    return "done";
  } catch (error) {
    return (error.cause ?? error).name;
  }
}

async function play(server, prefix, name) {
  const scenario = new Scenario(server, prefix + name);
  const report = { scenario: name, facts: scenario.facts };
  const startMs = Date.now();
  try {
    await scenario[name]();
  } catch (error) {
    report.error = `${error}`;
  }
  while (scenario.ends.length > 0) {
    try {
      await scenario.ends.pop()();
    } catch (error) {
      report.error ??= `at the end: ${error}`;
    }
  }
  report.ms = Date.now() - startMs;
  console.log(JSON.stringify(report));
}

function end() {
  console.log("end");
  process.exit(0);
}

process.on("unhandledRejection", error => console.error("unhandled:", error));
const [server, prefix, ...names] = process.argv.slice(2);
setTimeout(end, TIMEOUT_MS);
Promise.all(names.map(name => play(server, prefix, name))).then(end);
