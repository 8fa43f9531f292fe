/* Reproducible random numbers: xorshift64*, which is fast, and random enough for packet loss. */
#pragma once

#include <math.h>
#include <stdint.h>

struct chance {
    uint64_t state;
};

/* The multiplication makes the series of adjacent seeds differ. */
static inline void chance_seed(struct chance *chance, uint64_t seed)
{
    chance->state = (seed + 1) * 0x9E3779B97F4A7C15u;
}

/* Return a random number from 0 up to, but not including, 1. */
static inline double chance_uniform(struct chance *chance)
{
    uint64_t x = chance->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    chance->state = x;
    return (double)((x * 0x2545F4914F6CDD1Du) >> 11) / 9007199254740992.0;
}

/* Return an exponentially distributed time between independent events. */
static inline double chance_exponential(struct chance *chance, double mean)
{
    return -mean * log(1.0 - chance_uniform(chance));
}
