/* Frames from a TUN device: a virtio header, then an IPv4 packet or a super-packet.
 *
 * With segmentation offload the kernel delivers up to 64 KiB of one TCP stream as one packet with one header, which a
 * network card would cut into segments. This makes the emulator four times as fast. A link decides about each segment
 * separately, and forwards runs of adjacent segments as smaller super-packets, so it has to cut super-packets.
 * This file does no I/O.
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
    uint32_t segments;    /* number of packets on the wire: 1, or the segments of a super-packet */
    size_t ip_header;     /* bytes; this and the next two fields are set only for super-packets */
    size_t headers;       /* IP and TCP header, bytes */
    size_t segment_size;  /* payload of each segment but the last, bytes */
};

/* Parse a frame. Returns false if it is not a complete IPv4 packet. */
bool frame_parse(struct frame *frame, const uint8_t *bytes, size_t length);

/* Bytes of one segment on the wire, IP header included. */
uint32_t frame_wire_bytes(const struct frame *frame, uint32_t segment);

/* Write the segments from `first` up to, not including, `end` as one frame; `into` has room for `frame->length`.
 * Returns the bytes written. */
size_t frame_cut(const struct frame *frame, uint32_t first, uint32_t end, uint8_t *into);
