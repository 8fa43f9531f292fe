/* checks [NAME]: checks the emulator's arithmetic against values computed by hand; without NAME, prints all names.
 *
 * Built with the compiler's sanitizers, which also detect wrong addresses and overflows. test_emulator.py runs it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "shaper.h"

#define MS 1000000u
#define SECOND 1000000000u
#define PACKET 1500u
#define START (5 * (uint64_t)SECOND)

static int failures;

static void expect(const char *what, double is, double should, double tolerance)
{
    if (fabs(is - should) <= tolerance)
        return;
    printf("%s: %g, expected %g within %g\n", what, is, should, tolerance);
    failures++;
}

/* 1500 bytes take exactly 1 ms. */
static struct shaper link_of(struct settings settings)
{
    settings.rate = settings.rate > 0 ? settings.rate : 1.5e6;
    settings.queue = settings.queue ? settings.queue : 1u << 30;
    struct shaper shaper = {.settings = settings};
    chance_seed(&shaper.chance, 1);
    return shaper;
}

static void packets_wait_for_each_other(void)
{
    struct shaper shaper = link_of((struct settings){.delay = 10 * MS});
    struct times times = {0};
    for (uint64_t i = 1; i <= 100; i++) {
        shaper_admit(&shaper, START, PACKET, &times);
        expect("finish", (double)(times.finish - START), (double)(i * MS), 1);
        expect("due", (double)(times.due - times.finish), 10 * MS, 0);
    }
}

static void an_idle_link_does_not_save_its_time(void)
{
    struct shaper shaper = link_of((struct settings){0});
    struct times times = {0};
    shaper_admit(&shaper, START, PACKET, &times);
    shaper_admit(&shaper, START + SECOND, PACKET, &times);
    expect("finish", (double)(times.finish - START), SECOND + MS, 1);
}

static void the_queue_holds_its_bytes(void)
{
    struct shaper shaper = link_of((struct settings){.queue = 10 * PACKET});
    struct times times;
    int passed = 0;
    for (int i = 0; i < 100; i++)
        passed += shaper_admit(&shaper, START, PACKET, &times) == PASSED;
    expect("passed at once", passed, 10, 0);
    expect("after 1 ms there is room", shaper_admit(&shaper, START + MS, PACKET, &times), PASSED, 0);
    expect("but for one only", shaper_admit(&shaper, START + MS, PACKET, &times), QUEUE_FULL, 0);
}

static void packets_are_lost_as_often_as_told(void)
{
    const int count = 1000000;
    struct shaper shaper = link_of((struct settings){.loss = 0.01});
    struct times times;
    int lost = 0;
    for (int i = 0; i < count; i++)
        lost += shaper_admit(&shaper, START + (uint64_t)i * MS, PACKET, &times) == LOST;
    expect("lost", lost, count * 0.01, 4 * sqrt(count * 0.01));
}

static void a_lost_packet_has_used_its_time(void)
{
    struct shaper shaper = link_of((struct settings){.loss = 1});
    struct times times = {0};
    shaper_admit(&shaper, START, PACKET, &times);
    expect("free at", (double)(shaper.free_at - START), MS, 1);
}

static void bursts_are_as_frequent_and_long_as_told(void)
{
    const int count = 1000000;
    struct shaper shaper = link_of((struct settings){.bursts = {.start = 0.001, .end = 0.2, .loss = 1}});
    struct times times;
    int lost = 0, bursts = 0;
    enum verdict before = PASSED;
    for (int i = 0; i < count; i++) {
        enum verdict verdict = shaper_admit(&shaper, START + (uint64_t)i * MS, PACKET, &times);
        lost += verdict == LOST;
        bursts += verdict == LOST && before == PASSED;
        before = verdict;
    }
    expect("share of lost packets", (double)lost / count, 0.001 / 0.201, 0.0005);
    expect("packets in a burst", (double)lost / bursts, 5, 0.5);
}

static void jitter_spreads_evenly_and_keeps_the_order(void)
{
    const int count = 10000;
    struct shaper shaper = link_of((struct settings){.delay = 10 * MS, .jitter = 8 * MS});
    struct times times = {0};
    uint64_t before = 0;
    double sum = 0;
    for (int i = 0; i < count; i++) {
        shaper_admit(&shaper, START + (uint64_t)i * 100 * MS, PACKET, &times);
        sum += (double)(times.due - times.finish) / MS;
        expect("order", times.due >= before, 1, 0);
        before = times.due;
    }
    expect("mean delay, ms", sum / count, 14, 0.1);
    for (int i = 0; i < count; i++) {
        shaper_admit(&shaper, START * 1000 + (uint64_t)i, 40, &times);
        expect("order in a crowd", times.due >= before, 1, 0);
        before = times.due;
    }
}

static void a_new_rate_holds_for_those_who_wait(void)
{
    struct shaper shaper = link_of((struct settings){.delay = 10 * MS});
    struct times first, last;
    shaper_admit(&shaper, START, PACKET, &first);
    for (int i = 1; i < 11; i++)
        shaper_admit(&shaper, START, PACKET, &last);
    struct settings slower = shaper.settings;
    slower.rate = shaper.settings.rate / 10;
    uint64_t now = START + MS;
    double old_rate = shaper.settings.rate;
    shaper_change(&shaper, &slower, now);
    first = shaper_moved(first, old_rate, slower.rate, now);
    last = shaper_moved(last, old_rate, slower.rate, now);
    expect("one that travels", (double)(first.due - START), 11 * MS, 1);
    expect("the last that waits", (double)(last.due - START), 1 * MS + 10 * 10 * MS + 10 * MS, 10);
    expect("the link", (double)(shaper.free_at - START), 1 * MS + 10 * 10 * MS, 10);
}

static double strangers(struct cross cross, uint64_t seconds)
{
    struct shaper shaper = link_of((struct settings){.cross = cross});
    struct times times;
    for (uint64_t i = 0; i < seconds * 1000; i++)
        shaper_admit(&shaper, START + i * MS, 1, &times);
    return (double)shaper.cross_packets / (double)seconds;
}

static void strangers_come_as_often_as_told(void)
{
    expect("packets a second", strangers((struct cross){.rate = 0.3e6}, 100), 200, 4 * sqrt(200. / 100));
    struct cross half = {.rate = 0.3e6, .busy = 0.1 * SECOND, .quiet = 0.1 * SECOND};
    expect("with pauses", strangers(half, 1000), 100, 6);
}

static void strangers_take_their_share(void)
{
    struct shaper shaper = link_of((struct settings){.queue = 20 * PACKET, .cross = {.rate = 0.9e6}});
    struct times times;
    int passed = 0;
    struct chance ours = {1};
    double now = START;
    /* Twice the link's rate, for 10 s. Packets come at random times: with regular times, the sender whose packets come
     * just after another packet has left would get every free place in the queue. */
    for (; now < START + 10. * SECOND; now += chance_exponential(&ours, MS / 2))
        passed += shaper_admit(&shaper, (uint64_t)now, PACKET, &times) == PASSED;
    expect("all time is used", passed + (double)shaper.cross_packets, 10000, 50);
    expect("strangers suffer too", (double)shaper.cross_packets / passed, 600. / 2000, 0.1);
}

static void a_long_silence_is_not_caught_up_with(void)
{
    struct cross always = {.rate = 0.3e6}, pauses = {.rate = 0.3e6, .busy = 60. * SECOND, .quiet = 1};
    for (int i = 0; i < 2; i++) {
        struct shaper shaper = link_of((struct settings){.queue = 10 * PACKET, .cross = i ? pauses : always});
        struct times times;
        shaper_admit(&shaper, START, PACKET, &times);
        shaper_admit(&shaper, START + 3600 * (uint64_t)SECOND, PACKET, &times);
        expect("strangers in one queue's time, not in an hour", (double)shaper.cross_packets, 2, 10);
    }
}

enum { IP = 20, TCP = 32, HEADERS = IP + TCP, MSS = 1448 };

static void put(uint8_t *at, uint32_t value, int bytes)
{
    while (bytes--) {
        at[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

static uint32_t get(const uint8_t *at, int bytes)
{
    uint32_t value = 0;
    while (bytes--)
        value = value << 8 | *at++;
    return value;
}

/* A super-packet as TCP makes it: sequence number 0xfffff000, so that it wraps; CWR, PSH, FIN and ACK set. */
static uint8_t *super_packet(size_t payload, size_t *length)
{
    *length = VIRTIO_BYTES + HEADERS + payload;
    uint8_t *bytes = calloc(1, *length), *ip = bytes + VIRTIO_BYTES, *tcp = ip + IP;
    struct virtio_net_hdr virtio = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .gso_type = VIRTIO_NET_HDR_GSO_TCPV4};
    virtio.gso_size = MSS;
    virtio.hdr_len = 9999;
    virtio.csum_start = IP;
    virtio.csum_offset = 16;
    memcpy(bytes, &virtio, sizeof virtio);
    ip[0] = 0x45;
    put(ip + 2, (uint32_t)(HEADERS + payload), 2);
    put(ip + 4, 0xfffe, 2);
    ip[9] = 6;
    put(ip + 12, 0x0a4d0101, 4);
    put(ip + 16, 0x0a4d0201, 4);
    put(tcp + 4, 0xfffff000, 4);
    tcp[12] = TCP / 4 << 4;
    tcp[13] = 0x80 | 0x10 | 0x08 | 0x01;
    for (size_t i = 0; i < payload; i++)
        tcp[TCP + i] = (uint8_t)(i * 31 >> 3);
    return bytes;
}

static uint32_t sum16(const uint8_t *at, size_t bytes, uint32_t sum)
{
    for (size_t i = 0; i < bytes; i += 2)
        sum += get(at + i, 2);
    return (sum & 0xffff) + (sum >> 16);
}

static void expect_piece(const uint8_t *super, const uint8_t *piece, size_t length, uint32_t from, int last)
{
    const uint8_t *ip = piece + VIRTIO_BYTES, *tcp = ip + IP, *whole = super + VIRTIO_BYTES;
    size_t payload = length - VIRTIO_BYTES - HEADERS;
    struct virtio_net_hdr virtio;
    memcpy(&virtio, piece, sizeof virtio);
    expect("header length", virtio.hdr_len, HEADERS, 0);
    expect("checksum is left to the receiver", virtio.flags, VIRTIO_NET_HDR_F_NEEDS_CSUM, 0);
    expect("still a super-packet", virtio.gso_type != VIRTIO_NET_HDR_GSO_NONE, payload > MSS, 0);
    expect("IP length", get(ip + 2, 2), (double)(HEADERS + payload), 0);
    expect("IP id", get(ip + 4, 2), (0xfffe + from / MSS) & 0xffff, 0);
    expect("IP checksum", sum16(ip, IP, 0), 0xffff, 0);
    expect("sequence number", get(tcp + 4, 4), 0xfffff000u + from, 0);
    expect("ACK", tcp[13] & 0x10, 0x10, 0);
    expect("CWR on the first", tcp[13] & 0x80, from ? 0 : 0x80, 0);
    expect("PSH and FIN on the last", tcp[13] & 0x09, last ? 0x09 : 0, 0);
    expect("pseudo-header", get(tcp + 16, 2), sum16(ip + 12, 8, 6 + TCP + (uint32_t)payload), 0);
    expect("payload", memcmp(tcp + TCP, whole + HEADERS + from, payload), 0, 0);
}

/* Cut a super-packet into frames of this many segments. */
static void cut_by(uint32_t step)
{
    const size_t payload = 10 * MSS + 77;
    size_t length;
    uint8_t *super = super_packet(payload, &length), *piece = malloc(length);
    struct frame frame;
    expect("understood", frame_parse(&frame, super, length), 1, 0);
    expect("segments", frame.segments, 11, 0);
    uint32_t done = 0, wire = 0;
    for (uint32_t i = 0; i < 11; i++)
        wire += frame_wire_bytes(&frame, i);
    for (uint32_t first = 0; first < 11; first += step) {
        uint32_t end = first + step < 11 ? first + step : 11;
        size_t cut = frame_cut(&frame, first, end, piece);
        expect_piece(super, piece, cut, done, end == 11);
        done += (uint32_t)(cut - VIRTIO_BYTES - HEADERS);
    }
    expect("nothing is lost", done, (double)payload, 0);
    expect("each segment has its headers on the wire", wire, (double)payload + 11 * HEADERS, 0);
    free(piece);
    free(super);
}

static void super_packets_are_cut_truly(void)
{
    for (uint32_t step = 1; step <= 11; step++)
        cut_by(step);
}

static void strange_frames_are_refused(void)
{
    size_t length;
    uint8_t *super = super_packet(5000, &length);
    struct frame frame;
    for (size_t shorter = 0; shorter <= VIRTIO_BYTES + HEADERS; shorter++) {
        uint8_t *cut = malloc(shorter ? shorter : 1); /* the sanitizer detects reads beyond it */
        memcpy(cut, super, shorter);
        expect("cut short", frame_parse(&frame, cut, shorter), 0, 0);
        free(cut);
    }
    super[VIRTIO_BYTES] = 0x60;
    expect("IPv6", frame_parse(&frame, super, length), 0, 0);
    free(super);
}

#define CHECK(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} CHECKS[] = {
    CHECK(packets_wait_for_each_other),
    CHECK(an_idle_link_does_not_save_its_time),
    CHECK(the_queue_holds_its_bytes),
    CHECK(packets_are_lost_as_often_as_told),
    CHECK(a_lost_packet_has_used_its_time),
    CHECK(bursts_are_as_frequent_and_long_as_told),
    CHECK(jitter_spreads_evenly_and_keeps_the_order),
    CHECK(a_new_rate_holds_for_those_who_wait),
    CHECK(strangers_come_as_often_as_told),
    CHECK(strangers_take_their_share),
    CHECK(a_long_silence_is_not_caught_up_with),
    CHECK(super_packets_are_cut_truly),
    CHECK(strange_frames_are_refused),
};

int main(int count, char **words)
{
    int known = count == 1;
    for (size_t i = 0; i < sizeof CHECKS / sizeof *CHECKS; i++) {
        if (count == 1)
            puts(CHECKS[i].name);
        else if (!strcmp(words[1], CHECKS[i].name)) {
            known = 1;
            CHECKS[i].run();
        }
    }
    return failures || !known;
}
