/* Raw one-record Produce requests: many connections, several requests in flight on each, one thread with epoll. It
 * spends well under a microsecond on a request, so that the broker is what is measured. Prints one JSON object.
 *
 *   requests rate HOST PORT TOPIC PARTITIONS CONNECTIONS IN_FLIGHT COUNT SIZE ACKS
 *   requests first HOST PORT TOPIC      the monotonic time at which the first record was acknowledged
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_BYTES_MAX 65536
#define CONNECTIONS_MAX 1024
#define RESPONSE_BUFFER_BYTES 65536
#define RETRY_US 500
#define FIRST_WAIT_NS 120000000000LL
#define IDLE_WAIT_MS 30000
#define API_PRODUCE 0
#define API_METADATA 3

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
        fprintf(stderr, "requests: %s: %s\n", what, why);
        exit(1);
}

/* ---- bytes ---- */

struct buffer {
        uint8_t bytes[REQUEST_BYTES_MAX];
        size_t length;
};

static void put(struct buffer *to, const void *bytes, size_t length) {
        if (to->length + length > sizeof(to->bytes))
                die("request", "too large");
        memcpy(to->bytes + to->length, bytes, length);
        to->length += length;
}

static void put8(struct buffer *to, int8_t value) {
        put(to, &value, 1);
}

static void put16(struct buffer *to, int value) {
        uint16_t big = htobe16((uint16_t)value);
        put(to, &big, 2);
}

static void put32(struct buffer *to, int64_t value) {
        uint32_t big = htobe32((uint32_t)value);
        put(to, &big, 4);
}

static void put64(struct buffer *to, int64_t value) {
        uint64_t big = htobe64((uint64_t)value);
        put(to, &big, 8);
}

static void put_text(struct buffer *to, const char *text) {
        put16(to, (int)strlen(text));
        put(to, text, strlen(text));
}

static void put_varint(struct buffer *to, int64_t value) {
        uint64_t rest = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
        while (rest >= 0x80) {
                put8(to, (int8_t)(rest | 0x80));
                rest >>= 7;
        }
        put8(to, (int8_t)rest);
}

static int64_t get32(const uint8_t *at) {
        uint32_t big;
        memcpy(&big, at, 4);
        return (int32_t)be32toh(big);
}

static int get16(const uint8_t *at) {
        uint16_t big;
        memcpy(&big, at, 2);
        return (int16_t)be16toh(big);
}

static uint32_t crc32c(const uint8_t *bytes, size_t length) {
        uint32_t crc = 0xFFFFFFFFu;
        for (size_t i = 0; i < length; i++) {
                crc ^= bytes[i];
                for (int bit = 0; bit < 8; bit++)
                        crc = (crc >> 1) ^ (0x82F63B78u & -(crc & 1));
        }
        return ~crc;
}

/* ---- requests ---- */

static void begin_request(struct buffer *to, int key, int version) {
        to->length = 0;
        put32(to, 0); /* the size, known at the end */
        put16(to, key);
        put16(to, version);
        put32(to, 0); /* the correlation id */
        put_text(to, "benchmark");
}

static void end_request(struct buffer *to) {
        uint32_t size = htobe32((uint32_t)(to->length - 4));
        memcpy(to->bytes, &size, 4);
}

/* A record batch (format v2) with one record of `size` bytes and no key. */
static void put_batch(struct buffer *to, int size) {
        static struct buffer record;
        record.length = 0;
        put8(&record, 0);         /* attributes */
        put_varint(&record, 0);   /* timestamp delta */
        put_varint(&record, 0);   /* offset delta */
        put_varint(&record, -1);  /* no key */
        put_varint(&record, size);
        for (int i = 0; i < size; i++)
                put8(&record, (int8_t)(i * 31));
        put_varint(&record, 0); /* no headers */

        size_t start = to->length;
        put64(to, 0);  /* base offset */
        put32(to, 0);  /* batch length, known at the end */
        put32(to, -1); /* partition leader epoch */
        put8(to, 2);   /* magic */
        put32(to, 0);  /* crc, known at the end */
        size_t checked = to->length;
        put16(to, 0); /* attributes */
        put32(to, 0); /* last offset delta */
        struct timespec wall;
        clock_gettime(CLOCK_REALTIME, &wall);
        int64_t timestamp = (int64_t)wall.tv_sec * 1000;
        put64(to, timestamp);
        put64(to, timestamp);
        put64(to, -1); /* producer id */
        put16(to, -1); /* producer epoch */
        put32(to, -1); /* base sequence */
        put32(to, 1);  /* one record */
        put_varint(to, (int64_t)record.length);
        put(to, record.bytes, record.length);
        uint32_t length = htobe32((uint32_t)(to->length - start - 12));
        memcpy(to->bytes + start + 8, &length, 4);
        uint32_t crc = htobe32(crc32c(to->bytes + checked, to->length - checked));
        memcpy(to->bytes + start + 17, &crc, 4);
}

/* Produce v7: transactional id, acks, timeout, [topic, [partition, records]]. */
static void build_produce(struct buffer *to, const char *topic, int partition, int size, int acks) {
        begin_request(to, API_PRODUCE, 7);
        put16(to, -1);
        put16(to, acks);
        put32(to, 30000);
        put32(to, 1);
        put_text(to, topic);
        put32(to, 1);
        put32(to, partition);
        size_t length_at = to->length;
        put32(to, 0);
        put_batch(to, size);
        uint32_t length = htobe32((uint32_t)(to->length - length_at - 4));
        memcpy(to->bytes + length_at, &length, 4);
        end_request(to);
}

/* The error code of a Produce v7 response for one partition: correlation id, 1, topic, 1, partition, error ... */
static int produce_error(const uint8_t *body, size_t length) {
        if (length < 10)
                die("response", "too short");
        size_t at = 4 + 4;
        at += 2 + (size_t)get16(body + at) + 4 + 4;
        if (at + 2 > length)
                die("response", "too short");
        return get16(body + at);
}

static int connect_to(const char *host, int port) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
                die(host, "not an IPv4 address");
        int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(socket_fd, (struct sockaddr *)&address, sizeof(address))) {
                close(socket_fd);
                return -1;
        }
        int on = 1;
        setsockopt(socket_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        return socket_fd;
}

/* ---- rate ---- */

struct connection {
        int fd;
        int in_flight;
        size_t write_offset;  /* into `pending` copies of the request that are to be written */
        int pending;
        size_t have;
        uint8_t input[RESPONSE_BUFFER_BYTES];
        struct buffer *request;
        uint8_t *burst;       /* IN_FLIGHT copies of the request, so that one write sends many */
};

static void write_pending(struct connection *c) {
        while (c->pending) {
                size_t left = (size_t)c->pending * c->request->length - c->write_offset;
                ssize_t wrote = write(c->fd, c->burst + c->write_offset, left);
                if (wrote < 0) {
                        if (errno == EAGAIN || errno == EINTR)
                                return;
                        die("write", strerror(errno));
                }
                c->write_offset += (size_t)wrote;
                int whole = (int)(c->write_offset / c->request->length);
                c->pending -= whole;
                c->write_offset -= (size_t)whole * c->request->length;
        }
}

/* Take whole responses out of the input; returns how many. */
static int take_responses(struct connection *c) {
        ssize_t got = read(c->fd, c->input + c->have, sizeof(c->input) - c->have);
        if (got == 0)
                die("read", "the broker closed the connection");
        if (got < 0) {
                if (errno == EAGAIN || errno == EINTR)
                        return 0;
                die("read", strerror(errno));
        }
        c->have += (size_t)got;
        size_t at = 0;
        int taken = 0;
        while (c->have - at >= 4) {
                size_t size = (size_t)get32(c->input + at);
                if (size + 4 > sizeof(c->input))
                        die("response", "too large");
                if (c->have - at < size + 4)
                        break;
                int error = produce_error(c->input + at + 4, size);
                if (error) {
                        char text[32];
                        snprintf(text, sizeof(text), "error code %d", error);
                        die("produce", text);
                }
                at += size + 4;
                taken++;
        }
        memmove(c->input, c->input + at, c->have - at);
        c->have -= at;
        return taken;
}

static void rate(const char *host, int port, const char *topic, int partitions, int connections, int in_flight, long count,
                 int size, int acks) {
        if (connections > CONNECTIONS_MAX || acks == 0)
                die("usage", "too many connections, or acks=0, which has no answers to count");
        struct connection *all = calloc((size_t)connections, sizeof(*all));
        int poll_fd = epoll_create1(0);
        for (int i = 0; i < connections; i++) {
                struct connection *c = &all[i];
                c->request = malloc(sizeof(*c->request));
                build_produce(c->request, topic, i % partitions, size, acks);
                c->burst = malloc(c->request->length * (size_t)in_flight);
                for (int k = 0; k < in_flight; k++)
                        memcpy(c->burst + (size_t)k * c->request->length, c->request->bytes, c->request->length);
                c->fd = connect_to(host, port);
                if (c->fd < 0)
                        die("connect", strerror(errno));
                fcntl(c->fd, F_SETFL, O_NONBLOCK);
                struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
                epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &event);
        }
        double cpu_before = cpu_seconds();
        int64_t began = now_ns();
        long sent = 0;
        long answered = 0;
        for (int i = 0; i < connections && sent < count; i++) {
                long more = count - sent < in_flight ? count - sent : in_flight;
                all[i].pending = all[i].in_flight = (int)more;
                sent += more;
                write_pending(&all[i]);
        }
        struct epoll_event events[CONNECTIONS_MAX];
        while (answered < count) {
                int ready = epoll_wait(poll_fd, events, connections, IDLE_WAIT_MS);
                if (ready == 0)
                        die("produce", "no answer came");
                for (int i = 0; i < ready; i++) {
                        struct connection *c = events[i].data.ptr;
                        int taken = take_responses(c);
                        answered += taken;
                        c->in_flight -= taken;
                        long more = in_flight - c->in_flight;
                        if (more > count - sent)
                                more = count - sent;
                        c->pending += (int)more;
                        c->in_flight += (int)more;
                        sent += more;
                        write_pending(c);
                }
        }
        double seconds = (double)(now_ns() - began) / 1e9;
        printf("{\"requests\": %ld, \"seconds\": %.6f, \"client_cpu_seconds\": %.3f}\n", count, seconds,
               cpu_seconds() - cpu_before);
}

/* ---- first ---- */

/* Send one request and wait for its answer; the length of the body, or -1 when the connection broke. */
static ssize_t ask(int fd, const struct buffer *request, uint8_t *body, size_t room) {
        if (write(fd, request->bytes, request->length) != (ssize_t)request->length)
                return -1;
        uint8_t head[4];
        if (recv(fd, head, 4, MSG_WAITALL) != 4)
                return -1;
        ssize_t size = (ssize_t)get32(head);
        if (size <= 0 || (size_t)size > room || recv(fd, body, (size_t)size, MSG_WAITALL) != size)
                return -1;
        return size;
}

static void first(const char *host, int port, const char *topic) {
        static struct buffer metadata, produce;
        static uint8_t body[RESPONSE_BUFFER_BYTES];
        begin_request(&metadata, API_METADATA, 4);
        put32(&metadata, 1);
        put_text(&metadata, topic);
        put8(&metadata, 1); /* create it if it is not there */
        end_request(&metadata);
        build_produce(&produce, topic, 0, 100, 1);
        int64_t deadline = now_ns() + FIRST_WAIT_NS;
        int fd = -1;
        while (now_ns() < deadline) {
                if (fd < 0 && (fd = connect_to(host, port)) < 0) {
                        usleep(RETRY_US);
                        continue;
                }
                ssize_t size = ask(fd, &metadata, body, sizeof(body));
                if (size >= 0)
                        size = ask(fd, &produce, body, sizeof(body));
                if (size < 0) {
                        close(fd);
                        fd = -1;
                } else if (produce_error(body, (size_t)size) == 0) {
                        printf("{\"acknowledged_at_ns\": %lld}\n", (long long)now_ns());
                        return;
                }
                usleep(RETRY_US);
        }
        die("first", "nothing was acknowledged in time");
}

int main(int count, char **words) {
        if (count == 11 && !strcmp(words[1], "rate"))
                rate(words[2], atoi(words[3]), words[4], atoi(words[5]), atoi(words[6]), atoi(words[7]), atol(words[8]),
                     atoi(words[9]), atoi(words[10]));
        else if (count == 5 && !strcmp(words[1], "first"))
                first(words[2], atoi(words[3]), words[4]);
        else
                die("usage", "requests rate|first ...; see the head of requests.c");
        return 0;
}
