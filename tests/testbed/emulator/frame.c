/* Reading and cutting super-packets; frame.h says why. Field positions are those of RFC 791 and RFC 9293. */
#include "frame.h"

#include <string.h>

enum { IP_LENGTH = 2, IP_ID = 4, IP_CHECKSUM = 10, IP_ADDRESSES = 12, IP_LEAST = 20 };
enum { TCP_SEQUENCE = 4, TCP_OFFSET = 12, TCP_FLAGS = 13, TCP_CHECKSUM = 16, TCP_LEAST = 20 };
enum { FIN = 0x01, PSH = 0x08, CWR = 0x80 };
enum { PROTOCOL_TCP = 6 };

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static void put16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, (uint16_t)(value >> 16));
    put16(at + 2, (uint16_t)value);
}

/* The Internet checksum's sum (RFC 1071) of an even number of bytes, folded to 16 bits. */
static uint16_t sum16(const uint8_t *at, size_t bytes, uint32_t sum)
{
    for (size_t i = 0; i < bytes; i += 2)
        sum += get16(at + i);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

static struct virtio_net_hdr virtio_of(const uint8_t *bytes)
{
    struct virtio_net_hdr virtio;
    memcpy(&virtio, bytes, sizeof virtio);
    return virtio;
}

static bool parse_super(struct frame *frame, const struct virtio_net_hdr *virtio)
{
    const uint8_t *ip = frame->bytes + VIRTIO_BYTES;
    size_t length = frame->length - VIRTIO_BYTES;
    frame->ip_header = (size_t)(ip[0] & 15) * 4;
    if (length < frame->ip_header + TCP_LEAST)
        return false;
    frame->headers = frame->ip_header + (size_t)(ip[frame->ip_header + TCP_OFFSET] >> 4) * 4;
    frame->segment_size = virtio->gso_size;
    if (length <= frame->headers || frame->segment_size == 0)
        return false;
    size_t payload = length - frame->headers;
    frame->segments = (uint32_t)((payload + frame->segment_size - 1) / frame->segment_size);
    return true;
}

bool frame_parse(struct frame *frame, const uint8_t *bytes, size_t length)
{
    *frame = (struct frame){.bytes = bytes, .length = length, .segments = 1};
    if (length < VIRTIO_BYTES + IP_LEAST || bytes[VIRTIO_BYTES] >> 4 != 4)
        return false;
    struct virtio_net_hdr virtio = virtio_of(bytes);
    switch (virtio.gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
    case VIRTIO_NET_HDR_GSO_NONE:
        return true;
    case VIRTIO_NET_HDR_GSO_TCPV4:
        return parse_super(frame, &virtio);
    default:
        return false;
    }
}

static size_t payload_until(const struct frame *frame, uint32_t segment)
{
    size_t all = frame->length - VIRTIO_BYTES - frame->headers;
    size_t until = segment * frame->segment_size;
    return until < all ? until : all;
}

uint32_t frame_wire_bytes(const struct frame *frame, uint32_t segment)
{
    if (frame->segments == 1)
        return (uint32_t)(frame->length - VIRTIO_BYTES);
    size_t payload = payload_until(frame, segment + 1) - payload_until(frame, segment);
    return (uint32_t)(frame->headers + payload);
}

/* Correct the copied headers for a part of the stream. */
static void mend_headers(const struct frame *frame, uint8_t *ip, uint32_t first, bool last, size_t payload)
{
    uint8_t *tcp = ip + frame->ip_header;
    put16(ip + IP_LENGTH, (uint16_t)(frame->headers + payload));
    put16(ip + IP_ID, (uint16_t)(get16(ip + IP_ID) + first));
    put16(ip + IP_CHECKSUM, 0);
    put16(ip + IP_CHECKSUM, (uint16_t)~sum16(ip, frame->ip_header, 0));
    put32(tcp + TCP_SEQUENCE, get32(tcp + TCP_SEQUENCE) + (uint32_t)(first * frame->segment_size));
    if (!last)
        tcp[TCP_FLAGS] &= (uint8_t)~(FIN | PSH);
    if (first > 0)
        tcp[TCP_FLAGS] &= (uint8_t)~CWR;
    /* The receiving kernel completes the checksum, which covers only the pseudo-header so far. */
    size_t tcp_bytes = frame->headers - frame->ip_header + payload;
    put16(tcp + TCP_CHECKSUM, sum16(ip + IP_ADDRESSES, 8, PROTOCOL_TCP + (uint32_t)tcp_bytes));
}

size_t frame_cut(const struct frame *frame, uint32_t first, uint32_t end, uint8_t *into)
{
    if (frame->segments == 1) {
        memcpy(into, frame->bytes, frame->length);
        return frame->length;
    }
    size_t from = payload_until(frame, first), payload = payload_until(frame, end) - from;
    const uint8_t *packet = frame->bytes + VIRTIO_BYTES;
    uint8_t *ip = into + VIRTIO_BYTES;
    memcpy(ip, packet, frame->headers);
    memcpy(ip + frame->headers, packet + frame->headers + from, payload);
    mend_headers(frame, ip, first, end == frame->segments, payload);

    struct virtio_net_hdr virtio = virtio_of(frame->bytes);
    /* The kernel stores here how much of the packet is in its first piece of memory. The next device would silently
     * drop a smaller packet with the old number. */
    virtio.hdr_len = (uint16_t)frame->headers;
    if (end - first == 1) {
        virtio.gso_type = VIRTIO_NET_HDR_GSO_NONE;
        virtio.gso_size = 0;
    }
    memcpy(into, &virtio, sizeof virtio);
    return VIRTIO_BYTES + frame->headers + payload;
}
