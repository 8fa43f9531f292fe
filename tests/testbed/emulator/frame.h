/* What comes out of a TUN device: an IPv4 packet behind a virtio header, or a super-packet.
 *
 * With segmentation offload the kernel hands out up to 64 KiB of one TCP stream as one packet with one header, to be
 * cut into segments by the network card. That makes the emulator four times as fast, and is why a link has to know
 * how to cut: it decides about each segment, and passes on runs of neighbours as smaller super-packets.
 * No I/O in here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/virtio_net.h>

#define VIRTIO_BYTES sizeof(struct virtio_net_hdr)
#define FRAME_MOST (VIRTIO_BYTES + 65536)

struct frame {
    const uint8_t *bytes; /* the virtio header, then the packet */
    size_t length;        /* of both */
    uint32_t segments;    /* packets on the wire: 1, or what a super-packet stands for */
    size_t ip_header;     /* bytes; this and the next two for super-packets only */
    size_t headers;       /* IP and TCP header, bytes */
    size_t segment_size;  /* payload of each segment but the last, bytes */
};

/* Look at what was read; false when it is none of our packets (IPv6, or cut short). */
bool frame_parse(struct frame *frame, const uint8_t *bytes, size_t length);

/* Bytes of one segment on the wire, IP header included. */
uint32_t frame_wire_bytes(const struct frame *frame, uint32_t segment);

/* Write the segments from `first` up to, not including, `end` as one frame; `into` has room for `frame->length`.
 * Returns the bytes written. */
size_t frame_cut(const struct frame *frame, uint32_t first, uint32_t end, uint8_t *into);
