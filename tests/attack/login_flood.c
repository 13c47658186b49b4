/* Failed logins at a fixed rate: each attempt is a connection of its own, from one of many addresses of loopback, that
 * sends a wrong password (PLAIN) or a wrong proof (SCRAM-SHA-512). One thread with epoll. Attempts begin on time whether or not the
 * broker keeps up; one that is not over after half a second is given up. Prints a line of counts a second: JSON.
 *
 *   login_flood HOST PORT plain|scram ATTEMPTS_PER_SECOND ADDRESSES
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPTS_MAX 32768 /* descriptors, at the most */
#define GIVE_UP_NS 500000000LL
#define SECOND_NS 1000000000LL
#define TICK_MS 1
#define EVENTS_AT_ONCE 512
#define BEGIN_AT_ONCE 32
#define RECEIVED_BYTES_MAX 1024
#define REQUEST_BYTES_MAX 512
#define API_SASL_HANDSHAKE 17
#define API_SASL_AUTHENTICATE 36
#define FIRST_ADDRESS 0x7f010001 /* 127.1.0.1: honest clients use 127.0.0.1 */

enum state { FREE = 0, CONNECTING, ASKING, PROVING };

struct attempt {
        enum state state;
        int64_t begun_ns;
        size_t received;
        uint8_t bytes[RECEIVED_BYTES_MAX];
};

struct counts {
        long offered, accepted, answered, closed, given_up, not_opened;
};

static struct attempt attempts[ATTEMPTS_MAX];
/* Attempts by the order of their begin, to give them up. */
static int queue[ATTEMPTS_MAX];
static int64_t queue_begun_ns[ATTEMPTS_MAX];
static long queue_head, queue_tail;
static struct counts counts;
static int polling, is_plain;
static long number;

static int64_t now_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

static void die(const char *what) {
        fprintf(stderr, "login_flood: %s: %s\n", what, strerror(errno));
        exit(1);
}

/* ---- requests ---- */

struct buffer {
        uint8_t bytes[REQUEST_BYTES_MAX];
        size_t length;
};

static void put(struct buffer *to, const void *bytes, size_t length) {
        memcpy(to->bytes + to->length, bytes, length);
        to->length += length;
}

static void put16(struct buffer *to, int value) {
        uint16_t big = htobe16((uint16_t)value);
        put(to, &big, 2);
}

static void put32(struct buffer *to, size_t value) {
        uint32_t big = htobe32((uint32_t)value);
        put(to, &big, 4);
}

/* A request of version 1, without a client id. */
static void put_header(struct buffer *to, size_t body_length, int api_key) {
        put32(to, 10 + body_length);
        put16(to, api_key);
        put16(to, 1);
        put32(to, 1);
        put16(to, -1);
}

static void put_handshake(struct buffer *to, const char *mechanism) {
        size_t length = strlen(mechanism);
        put_header(to, 2 + length, API_SASL_HANDSHAKE);
        put16(to, (int)length);
        put(to, mechanism, length);
}

static void put_token(struct buffer *to, const char *token, size_t length) {
        put_header(to, 4 + length, API_SASL_AUTHENTICATE);
        put32(to, length);
        put(to, token, length);
}

static int ask(int fd) {
        struct buffer request = {.length = 0};
        char token[128];
        int length;
        number++;
        put_handshake(&request, is_plain ? "PLAIN" : "SCRAM-SHA-512");
        if (is_plain)
                length = snprintf(token, sizeof(token), "%cuser-%ld%cwrong-%ld", 0, number % 1000, 0, number);
        else
                length = snprintf(token, sizeof(token), "n,,n=user-%ld,r=nonce%ld", number % 1000, number);
        put_token(&request, token, (size_t)length);
        return send(fd, request.bytes, request.length, MSG_NOSIGNAL) == (ssize_t)request.length;
}

/* The challenge has `r=NONCE,s=...`: the proof of the final message is wrong. */
static int prove(int fd, const uint8_t *challenge, size_t length) {
        struct buffer request = {.length = 0};
        char token[384], proof[89];
        const uint8_t *nonce = memmem(challenge, length, "r=", 2);
        const uint8_t *end = nonce == NULL ? NULL : memchr(nonce, ',', length - (size_t)(nonce - challenge));
        if (end == NULL)
                return 0;
        memset(proof, 'A', 86);
        memcpy(proof + 86, "==", 3);
        int written = snprintf(token, sizeof(token), "c=biws,%.*s,p=%s", (int)(end - nonce), (const char *)nonce, proof);
        if (written >= (int)sizeof(token))
                return 0;
        put_token(&request, token, (size_t)written);
        return send(fd, request.bytes, request.length, MSG_NOSIGNAL) == (ssize_t)request.length;
}

/* ---- attempts ---- */

static void end(int fd, long *count) {
        /* Without a linger the port would stay in TIME_WAIT where this side closes first. */
        struct linger at_once = {.l_onoff = 1, .l_linger = 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close(fd);
        attempts[fd].state = FREE;
        (*count)++;
}

static void begin(const struct sockaddr_in *broker, uint32_t source) {
        struct sockaddr_in local = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(source)};
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
        int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (fd < 0 || fd >= ATTEMPTS_MAX || queue_tail - queue_head >= ATTEMPTS_MAX) {
                counts.not_opened++;
                if (fd >= 0)
                        close(fd);
                return;
        }
        /* The port is chosen at connect, where it has to be unused for this broker alone. */
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
        if (bind(fd, (struct sockaddr *)&local, sizeof(local)) != 0)
                die("bind");
        if (connect(fd, (const struct sockaddr *)broker, sizeof(*broker)) != 0 && errno != EINPROGRESS) {
                counts.not_opened++;
                close(fd);
                return;
        }
        attempts[fd] = (struct attempt){.state = CONNECTING, .begun_ns = now_ns()};
        queue[queue_tail % ATTEMPTS_MAX] = fd;
        queue_begun_ns[queue_tail++ % ATTEMPTS_MAX] = attempts[fd].begun_ns;
        event.data.fd = fd;
        if (epoll_ctl(polling, EPOLL_CTL_ADD, fd, &event) != 0)
                die("epoll_ctl");
        counts.offered++;
}

/* The first whole frame is cut off. Returns its length; 0: it is not whole. */
static size_t next_frame(struct attempt *attempt, uint8_t *frame) {
        uint32_t length;
        if (attempt->received < 4)
                return 0;
        memcpy(&length, attempt->bytes, 4);
        length = be32toh(length);
        if (length > RECEIVED_BYTES_MAX - 4 || attempt->received < 4 + length)
                return 0;
        memcpy(frame, attempt->bytes + 4, length);
        attempt->received -= 4 + length;
        memmove(attempt->bytes, attempt->bytes + 4 + length, attempt->received);
        return length;
}

/* In a frame the correlation id is first. The answers are: the handshake, (SCRAM) the challenge, the failure. */
static void take_frames(int fd) {
        struct attempt *attempt = &attempts[fd];
        uint8_t frame[RECEIVED_BYTES_MAX];
        size_t length;
        while ((length = next_frame(attempt, frame)) != 0) {
                int is_failure = length >= 6 && frame[4] == 0 && frame[5] != 0;
                if (is_failure) {
                        end(fd, &counts.answered);
                        return;
                }
                if (!is_plain && attempt->state == ASKING && memmem(frame, length, "r=", 2) != NULL) {
                        attempt->state = PROVING;
                        if (!prove(fd, frame, length)) {
                                end(fd, &counts.closed);
                                return;
                        }
                }
        }
}

static void on_event(int fd, uint32_t events) {
        struct attempt *attempt = &attempts[fd];
        if (attempt->state == FREE)
                return;
        if (attempt->state == CONNECTING && (events & EPOLLOUT) && !(events & (EPOLLERR | EPOLLHUP))) {
                counts.accepted++;
                attempt->state = ASKING;
                if (!ask(fd)) {
                        end(fd, &counts.closed);
                        return;
                }
        }
        while (attempt->state != FREE) {
                ssize_t got = recv(fd, attempt->bytes + attempt->received, RECEIVED_BYTES_MAX - attempt->received, 0);
                if (got < 0 && errno == EAGAIN)
                        return;
                if (got <= 0) {
                        end(fd, &counts.closed);
                        return;
                }
                attempt->received += (size_t)got;
                take_frames(fd);
        }
}

static void give_up(int64_t now) {
        for (; queue_head < queue_tail && now - queue_begun_ns[queue_head % ATTEMPTS_MAX] > GIVE_UP_NS; queue_head++) {
                int fd = queue[queue_head % ATTEMPTS_MAX];
                /* The descriptor may be that of a younger attempt by now. */
                if (attempts[fd].state != FREE && attempts[fd].begun_ns == queue_begun_ns[queue_head % ATTEMPTS_MAX])
                        end(fd, &counts.given_up);
        }
}

static void report(int64_t elapsed_ns) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        printf("{\"seconds\": %.3f, \"offered\": %ld, \"accepted\": %ld, \"answered\": %ld, \"closed\": %ld,"
               " \"given_up\": %ld, \"not_opened\": %ld, \"cpu_seconds\": %.2f}\n",
               (double)elapsed_ns / 1e9, counts.offered, counts.accepted, counts.answered, counts.closed,
               counts.given_up, counts.not_opened,
               (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
        fflush(stdout);
        counts = (struct counts){0};
}

int main(int argc, char **argv) {
        struct rlimit files;
        struct sockaddr_in broker = {.sin_family = AF_INET};
        struct epoll_event events[EVENTS_AT_ONCE];
        if (argc != 6) {
                fprintf(stderr, "usage: login_flood HOST PORT plain|scram ATTEMPTS_PER_SECOND ADDRESSES\n");
                return 2;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends with the attacker that started it */
        getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
        inet_pton(AF_INET, argv[1], &broker.sin_addr);
        broker.sin_port = htons((uint16_t)atoi(argv[2]));
        is_plain = strcmp(argv[3], "plain") == 0;
        double rate = atof(argv[4]);
        uint32_t addresses = (uint32_t)atoi(argv[5]);
        if ((polling = epoll_create1(0)) < 0)
                die("epoll_create1");
        int64_t begun_ns = now_ns(), reported_ns = begun_ns;
        for (long made = 0;;) {
                int64_t now = now_ns();
                long due = (long)((double)(now - begun_ns) / 1e9 * rate);
                for (int step = 0; made < due && step < BEGIN_AT_ONCE; made++, step++)
                        begin(&broker, FIRST_ADDRESS + (uint32_t)made % addresses);
                int found = epoll_wait(polling, events, EVENTS_AT_ONCE, made < due ? 0 : TICK_MS);
                for (int index = 0; index < found; index++)
                        on_event(events[index].data.fd, events[index].events);
                now = now_ns();
                give_up(now);
                if (now - reported_ns >= SECOND_NS) {
                        report(now - reported_ns);
                        reported_ns = now;
                }
        }
}
