/* The benchmark's client: librdkafka producing, consuming, or measuring end-to-end latency. Prints one JSON object.
 *
 *   client produce BOOTSTRAP TOPIC PARTITIONS COUNT SIZE ACKS
 *   client consume BOOTSTRAP TOPIC PARTITIONS COUNT
 *   client latency BOOTSTRAP TOPIC RATE SECONDS ACKS
 *   client transact BOOTSTRAP TOPIC PRODUCERS TRANSACTIONS MESSAGES SIZE
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "rdkafka.h"

#define POOL_BYTES (4 << 20)         /* random payloads are slices of this, so that nothing compresses or repeats */
#define CONSUME_BATCH 10000          /* messages taken from librdkafka at once */
#define FLUSH_WAIT_MS 120000         /* for the last acknowledgements */
#define IDLE_WAIT_NS 60000000000LL   /* without any progress, give up */
#define WARM_MESSAGES 500            /* latency: sent first and not counted */
#define TRANSACT_WAIT_MS 60000       /* for each step of a transaction */
#define WARM_TRANSACTIONS 5          /* of each producer, not counted */

static atomic_long acknowledged;
static atomic_long failed;
static char first_error[256];

static int64_t now_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000LL + now.tv_nsec;
}

static double cpu_seconds(void) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void die(const char *what, const char *why) {
        fprintf(stderr, "client: %s: %s\n", what, why);
        exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
        char error[256];
        if (rd_kafka_conf_set(conf, name, value, error, sizeof(error)) != RD_KAFKA_CONF_OK)
                die(name, error);
}

/* The address, and TLS where BENCH_CA names the certificate to trust. */
static void set_server(rd_kafka_conf_t *conf, const char *bootstrap) {
        const char *authority = getenv("BENCH_CA");
        set(conf, "bootstrap.servers", bootstrap);
        if (authority) {
                set(conf, "security.protocol", "SSL");
                set(conf, "ssl.ca.location", authority);
        }
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
        (void)rk;
        (void)opaque;
        if (message->err) {
                if (atomic_fetch_add(&failed, 1) == 0)
                        snprintf(first_error, sizeof(first_error), "%s", rd_kafka_err2str(message->err));
        } else {
                atomic_fetch_add(&acknowledged, 1);
        }
}

static rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
        char error[256];
        rd_kafka_t *rk = rd_kafka_new(type, conf, error, sizeof(error));
        if (!rk)
                die("rd_kafka_new", error);
        return rk;
}

static rd_kafka_t *new_producer(const char *bootstrap, const char *acks, const char *linger_ms) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set_server(conf, bootstrap);
        set(conf, "acks", acks);
        set(conf, "linger.ms", linger_ms);
        set(conf, "batch.num.messages", "10000");
        set(conf, "queue.buffering.max.messages", "500000");
        set(conf, "queue.buffering.max.kbytes", "524288");
        set(conf, "socket.nagle.disable", "true");
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
        return new_client(RD_KAFKA_PRODUCER, conf);
}

/* A consumer of these partitions from `offset`, all on one queue. */
static rd_kafka_t *new_consumer(const char *bootstrap, const char *topic, int partitions, int64_t offset) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set_server(conf, bootstrap);
        set(conf, "group.id", "benchmark");
        set(conf, "enable.auto.commit", "false");
        set(conf, "enable.partition.eof", "false");
        set(conf, "queued.min.messages", "1000000");
        set(conf, "fetch.message.max.bytes", "4194304");
        set(conf, "fetch.wait.max.ms", "500");
        set(conf, "check.crcs", "false");
        rd_kafka_t *rk = new_client(RD_KAFKA_CONSUMER, conf);
        rd_kafka_poll_set_consumer(rk);
        rd_kafka_topic_partition_list_t *assigned = rd_kafka_topic_partition_list_new(partitions);
        for (int partition = 0; partition < partitions; partition++)
                rd_kafka_topic_partition_list_add(assigned, topic, partition)->offset = offset;
        rd_kafka_resp_err_t error = rd_kafka_assign(rk, assigned);
        if (error)
                die("assign", rd_kafka_err2str(error));
        rd_kafka_topic_partition_list_destroy(assigned);
        return rk;
}

static char *random_pool(void) {
        char *pool = malloc(POOL_BYTES);
        uint64_t state = 88172645463325252ULL;
        for (size_t at = 0; at < POOL_BYTES; at += 8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                memcpy(pool + at, &state, 8);
        }
        return pool;
}

static void print_rate(long count, long bytes, int64_t elapsed_ns, double cpu_s) {
        double seconds = (double)elapsed_ns / 1e9;
        printf("{\"messages\": %ld, \"bytes\": %ld, \"seconds\": %.6f, \"client_cpu_seconds\": %.3f}\n", count, bytes,
               seconds, cpu_s);
}

static void produce(const char *bootstrap, const char *topic, int partitions, long count, int size, const char *acks) {
        char *pool = random_pool();
        rd_kafka_t *rk = new_producer(bootstrap, acks, "5");
        rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, topic, NULL);
        const struct rd_kafka_metadata *metadata;
        rd_kafka_resp_err_t error = rd_kafka_metadata(rk, 0, handle, &metadata, 30000);
        if (error)
                die("metadata", rd_kafka_err2str(error));
        rd_kafka_metadata_destroy(metadata);

        double cpu_before = cpu_seconds();
        int64_t began = now_ns();
        for (long i = 0; i < count; i++) {
                size_t at = ((size_t)i * 509) % (POOL_BYTES - (size_t)size);
                while (rd_kafka_produce(handle, (int32_t)(i % partitions), RD_KAFKA_MSG_F_COPY, pool + at, (size_t)size,
                                        NULL, 0, NULL) == -1) {
                        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                                die("produce", rd_kafka_err2str(rd_kafka_last_error()));
                        rd_kafka_poll(rk, 10);
                }
                if (i % 1000 == 0)
                        rd_kafka_poll(rk, 0);
        }
        if (rd_kafka_flush(rk, FLUSH_WAIT_MS))
                die("flush", "the last acknowledgements did not come");
        int64_t elapsed = now_ns() - began;
        if (atomic_load(&failed) || atomic_load(&acknowledged) != count)
                die("not every message was acknowledged", first_error);
        print_rate(count, count * size, elapsed, cpu_seconds() - cpu_before);
        rd_kafka_topic_destroy(handle);
        rd_kafka_destroy(rk);
        free(pool);
}

static void consume(const char *bootstrap, const char *topic, int partitions, long count) {
        double cpu_before = cpu_seconds();
        int64_t began = now_ns();
        int64_t last_progress = began;
        rd_kafka_t *rk = new_consumer(bootstrap, topic, partitions, RD_KAFKA_OFFSET_BEGINNING);
        rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
        rd_kafka_message_t **messages = malloc(CONSUME_BATCH * sizeof(*messages));
        long seen = 0;
        long bytes = 0;
        while (seen < count) {
                ssize_t got = rd_kafka_consume_batch_queue(queue, 100, messages, CONSUME_BATCH);
                for (ssize_t i = 0; i < got; i++) {
                        if (messages[i]->err)
                                die("consume", rd_kafka_message_errstr(messages[i]));
                        seen++;
                        bytes += (long)messages[i]->len;
                        rd_kafka_message_destroy(messages[i]);
                }
                if (got > 0)
                        last_progress = now_ns();
                else if (now_ns() - last_progress > IDLE_WAIT_NS)
                        die("consume", "no more messages came");
        }
        print_rate(seen, bytes, now_ns() - began, cpu_seconds() - cpu_before);
        free(messages);
        rd_kafka_queue_destroy(queue);
        rd_kafka_consumer_close(rk);
        rd_kafka_destroy(rk);
}

struct sending {
        const char *bootstrap;
        const char *topic;
        long rate;
        long count;
        const char *acks;
};

/* Sends at a steady rate on an absolute schedule; each message carries when it was handed to librdkafka. */
static void *send_steadily(void *argument) {
        struct sending *sending = argument;
        rd_kafka_t *rk = new_producer(sending->bootstrap, sending->acks, "0");
        rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, sending->topic, NULL);
        char payload[100] = {0};
        int64_t interval_ns = 1000000000LL / sending->rate;
        int64_t next = now_ns();
        for (long i = 0; i < sending->count; i++) {
                struct timespec at = {.tv_sec = next / 1000000000LL, .tv_nsec = next % 1000000000LL};
                clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
                int64_t sent = now_ns();
                memcpy(payload, &sent, sizeof(sent));
                if (rd_kafka_produce(handle, 0, RD_KAFKA_MSG_F_COPY, payload, sizeof(payload), NULL, 0, NULL) == -1)
                        die("produce", rd_kafka_err2str(rd_kafka_last_error()));
                rd_kafka_poll(rk, 0);
                next += interval_ns;
        }
        if (rd_kafka_flush(rk, FLUSH_WAIT_MS))
                die("flush", "the last acknowledgements did not come");
        rd_kafka_topic_destroy(handle);
        rd_kafka_destroy(rk);
        return NULL;
}

static int ascending(const void *left, const void *right) {
        int64_t a = *(const int64_t *)left;
        int64_t b = *(const int64_t *)right;
        return (a > b) - (a < b);
}

static void latency(const char *bootstrap, const char *topic, long rate, long seconds, const char *acks) {
        long count = rate * seconds + WARM_MESSAGES;
        int64_t *taken = malloc((size_t)count * sizeof(*taken));
        rd_kafka_t *rk = new_consumer(bootstrap, topic, 1, RD_KAFKA_OFFSET_BEGINNING);
        rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
        struct sending sending = {.bootstrap = bootstrap, .topic = topic, .rate = rate, .count = count, .acks = acks};
        pthread_t sender;
        if (pthread_create(&sender, NULL, send_steadily, &sending))
                die("pthread_create", "no thread");
        int64_t last_progress = now_ns();
        for (long seen = 0; seen < count;) {
                rd_kafka_message_t *message = rd_kafka_consume_queue(queue, 100);
                if (!message) {
                        if (now_ns() - last_progress > IDLE_WAIT_NS)
                                die("latency", "no more messages came");
                        continue;
                }
                last_progress = now_ns();
                if (message->err)
                        die("consume", rd_kafka_message_errstr(message));
                int64_t sent;
                memcpy(&sent, message->payload, sizeof(sent));
                taken[seen++] = last_progress - sent;
                rd_kafka_message_destroy(message);
        }
        pthread_join(sender, NULL);
        long measured = count - WARM_MESSAGES;
        int64_t *sorted = taken + WARM_MESSAGES;
        qsort(sorted, (size_t)measured, sizeof(*sorted), ascending);
        printf("{\"messages\": %ld, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, \"max_ms\": %.4f}\n", measured,
               (double)sorted[measured / 2] / 1e6, (double)sorted[measured * 99 / 100] / 1e6,
               (double)sorted[measured * 999 / 1000] / 1e6, (double)sorted[measured - 1] / 1e6);
        rd_kafka_queue_destroy(queue);
        rd_kafka_consumer_close(rk);
        rd_kafka_destroy(rk);
        free(taken);
}

struct transacting {
        const char *bootstrap;
        const char *topic;
        int number; /* of the producer, and of its partition */
        long transactions;
        long messages;
        size_t size;
        pthread_barrier_t *warm;
};

static void must(const char *what, rd_kafka_error_t *error) {
        if (error)
                die(what, rd_kafka_error_string(error));
}

static void one_transaction(rd_kafka_t *rk, rd_kafka_topic_t *handle, const struct transacting *given, char *payload) {
        must("begin", rd_kafka_begin_transaction(rk));
        for (long i = 0; i < given->messages; i++) {
                int64_t sent = now_ns();
                memcpy(payload, &sent, sizeof(sent));
                while (rd_kafka_produce(handle, given->number, RD_KAFKA_MSG_F_COPY, payload, given->size, NULL, 0,
                                        NULL) == -1) {
                        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                                die("produce", rd_kafka_err2str(rd_kafka_last_error()));
                        rd_kafka_poll(rk, 10);
                }
        }
        must("commit", rd_kafka_commit_transaction(rk, TRANSACT_WAIT_MS));
}

/* One producer with a transactional id and a partition of its own, one transaction after the other. */
static void *transact_one(void *argument) {
        struct transacting *given = argument;
        char id[128];
        char *payload = calloc(1, given->size);
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set_server(conf, given->bootstrap);
        snprintf(id, sizeof(id), "%s-%d", given->topic, given->number);
        set(conf, "transactional.id", id);
        set(conf, "linger.ms", "0");
        set(conf, "batch.num.messages", "10000");
        set(conf, "socket.nagle.disable", "true");
        rd_kafka_t *rk = new_client(RD_KAFKA_PRODUCER, conf);
        rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, given->topic, NULL);
        must("init", rd_kafka_init_transactions(rk, TRANSACT_WAIT_MS));
        for (long i = 0; i < WARM_TRANSACTIONS; i++)
                one_transaction(rk, handle, given, payload);
        pthread_barrier_wait(given->warm);
        for (long i = 0; i < given->transactions; i++)
                one_transaction(rk, handle, given, payload);
        rd_kafka_topic_destroy(handle);
        rd_kafka_destroy(rk);
        free(payload);
        return NULL;
}

struct reading {
        const char *bootstrap;
        const char *topic;
        int partitions;
        long count;
        _Atomic int64_t began; /* messages that were sent before are not measured */
        int64_t *taken;
        long measured;
};

/* Reads what is committed, and notes how long each message took from the call that sent it. */
static void *read_committed(void *argument) {
        struct reading *reading = argument;
        rd_kafka_t *rk = new_consumer(reading->bootstrap, reading->topic, reading->partitions, RD_KAFKA_OFFSET_BEGINNING);
        rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
        int64_t last_progress = now_ns();
        for (long seen = 0; seen < reading->count;) {
                rd_kafka_message_t *message = rd_kafka_consume_queue(queue, 100);
                if (!message) {
                        if (now_ns() - last_progress > IDLE_WAIT_NS)
                                die("transact", "no more messages came");
                        continue;
                }
                last_progress = now_ns();
                if (message->err)
                        die("consume", rd_kafka_message_errstr(message));
                int64_t sent;
                memcpy(&sent, message->payload, sizeof(sent));
                int64_t began = atomic_load(&reading->began);
                if (began && sent >= began)
                        reading->taken[reading->measured++] = last_progress - sent;
                seen++;
                rd_kafka_message_destroy(message);
        }
        rd_kafka_queue_destroy(queue);
        rd_kafka_consumer_close(rk);
        rd_kafka_destroy(rk);
        return NULL;
}

static void transact(const char *bootstrap, const char *topic, int producers, long transactions, long messages, int size) {
        long each = transactions / producers;
        long count = (each + WARM_TRANSACTIONS) * messages * producers;
        struct reading reading = {.bootstrap = bootstrap, .topic = topic, .partitions = producers, .count = count};
        reading.taken = malloc((size_t)count * sizeof(*reading.taken));
        struct transacting *given = calloc((size_t)producers, sizeof(*given));
        pthread_t *threads = calloc((size_t)producers, sizeof(*threads));
        pthread_t reader;
        pthread_barrier_t warm;
        pthread_barrier_init(&warm, NULL, (unsigned)producers + 1);
        if (pthread_create(&reader, NULL, read_committed, &reading))
                die("pthread_create", "no thread");
        for (int i = 0; i < producers; i++) {
                given[i] = (struct transacting){.bootstrap = bootstrap, .topic = topic, .number = i, .transactions = each,
                                                .messages = messages, .size = (size_t)size, .warm = &warm};
                if (pthread_create(&threads[i], NULL, transact_one, &given[i]))
                        die("pthread_create", "no thread");
        }
        pthread_barrier_wait(&warm);
        double cpu_before = cpu_seconds();
        int64_t began = now_ns();
        atomic_store(&reading.began, began);
        for (int i = 0; i < producers; i++)
                pthread_join(threads[i], NULL);
        int64_t elapsed = now_ns() - began;
        pthread_join(reader, NULL);
        long measured = reading.measured;
        if (!measured)
                die("transact", "nothing was measured");
        qsort(reading.taken, (size_t)measured, sizeof(*reading.taken), ascending);
        printf("{\"transactions\": %ld, \"messages\": %ld, \"bytes\": %ld, \"seconds\": %.6f, \"client_cpu_seconds\": %.3f, "
               "\"p50_ms\": %.4f, \"p99_ms\": %.4f}\n",
               each * producers, each * producers * messages, each * producers * messages * size, (double)elapsed / 1e9,
               cpu_seconds() - cpu_before, (double)reading.taken[measured / 2] / 1e6,
               (double)reading.taken[measured * 99 / 100] / 1e6);
        free(given);
        free(threads);
        free(reading.taken);
}

int main(int count, char **words) {
        if (count == 8 && !strcmp(words[1], "produce"))
                produce(words[2], words[3], atoi(words[4]), atol(words[5]), atoi(words[6]), words[7]);
        else if (count == 6 && !strcmp(words[1], "consume"))
                consume(words[2], words[3], atoi(words[4]), atol(words[5]));
        else if (count == 7 && !strcmp(words[1], "latency"))
                latency(words[2], words[3], atol(words[4]), atol(words[5]), words[6]);
        else if (count == 8 && !strcmp(words[1], "transact"))
                transact(words[2], words[3], atoi(words[4]), atol(words[5]), atol(words[6]), atoi(words[7]));
        else
                die("usage", "client produce|consume|latency|transact ...; see the head of client.c");
        return 0;
}
