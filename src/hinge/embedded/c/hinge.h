/* hinge.h: decides, sample by sample, whether a local answer is good enough. C99, MIT licence.

   In one source file:      #define HINGE_IMPLEMENTATION
                            #include "hinge.h"
   wherever it is used:     #include "hinge.h"

   Settings come from hinge_config.h beside this file, as `hinge export c` writes it, or from the compiler's options:

     HINGE_BINS          how many bins confidences are sorted into, 1 to 255
     HINGE_THRESHOLD     one minus the offload cost, in units of 2^-32, rounded up
     HINGE_LEARNED_COST  if defined, in place of HINGE_THRESHOLD: the mean offload cost is learned
     HINGE_RATE          log2(e) / alpha / 2^HINGE_SHIFT, in units of 2^-32
     HINGE_SHIFT         0 to 15
     HINGE_MONOTONE      if defined: HI-LCB, which takes agreement not to fall with confidence; if not: HI-LCB-lite
     HINGE_TABLE_ONLY    if defined: no learning, as expiries are found elsewhere; of the others HINGE_BINS is needed
     HINGE_SENTINEL      if defined beside HINGE_TABLE_ONLY: licences that are counted down, as Sentinel gives them

   A bin is accepted until its expiry, a time counted in samples, and only an offload moves it. Where licences are counted
   down, `left` samples of a bin are accepted, the next one is offloaded as an audit, and the licence begins again with
   the length `granted`; a bin whose licence is 0 long is always offloaded. All arithmetic is in
   whole numbers: no floating point, no division, no memory but the state, which is the caller's. A state of zeros has
   seen nothing. It holds no pointers, so that it may be kept in flash or EEPROM byte by byte.

   At the limits:
     a bin too high    is offloaded, as one never seen; to learn about it changes nothing.
     the clock         stops at 2^31. From there a bin whose expiry is later is accepted for good, and every other one
                       is offloaded until it has earned as much. Such an expiry is earned wrongly with a chance of at
                       most 2^(-62 alpha) at each offload.
     a licence         of 2^32 samples and more is 2^32 - 1 long.
     an expiry         of 2^32 and beyond becomes 2^32 - 1.
     65536 offloads    of a bin become 32768, and their agreements half as many; likewise those of all bins, and their
                       costs. What is left is a weighted mean with weights of at most 1: the bound that the policy
                       rests on holds for it as for a plain one.
     a cost            above 1 counts as 1. */

#ifndef HINGE_H
#define HINGE_H

#include <stdbool.h>
#include <stdint.h>

#ifndef HINGE_BINS
#include "hinge_config.h"
#endif

#if HINGE_BINS < 1 || HINGE_BINS > 255
#error "hinge.h: HINGE_BINS must be from 1 to 255"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HINGE_CLOCK_END 0x80000000u

#ifdef HINGE_SENTINEL

struct hinge_bin {
    uint32_t left, granted; /* samples that the licence has left, and how long it is */
};

struct hinge {
    struct hinge_bin bins[HINGE_BINS];
};

/* Whether to offload the next sample, whose confidence lies in `bin`. */
static inline bool hinge_decide(struct hinge *state, uint8_t bin)
{
    struct hinge_bin *of;
    if (bin >= HINGE_BINS)
        return true;
    of = &state->bins[bin];
    if (of->left) {
        of->left--;
        return false;
    }
    of->left = of->granted;
    return true;
}

#else

struct hinge_bin {
    uint32_t expiry;
#ifndef HINGE_TABLE_ONLY
    uint16_t offloads, agreements;
#if defined(HINGE_MONOTONE) && !defined(HINGE_LEARNED_COST)
    uint32_t own; /* the expiry that the bin's own offloads give it */
#endif
#endif
};

struct hinge {
    uint32_t time; /* samples decided so far */
#ifdef HINGE_LEARNED_COST
    uint32_t costs; /* of all offloads together, in units of 2^-15 */
    uint16_t offloads;
#endif
    struct hinge_bin bins[HINGE_BINS];
};

/* Whether to offload the next sample, whose confidence lies in `bin`. */
static inline bool hinge_decide(struct hinge *state, uint8_t bin)
{
    uint32_t time, expiry = 0;
    if (bin < HINGE_BINS)
        expiry = state->bins[bin].expiry;
    time = state->time;
    if (time < HINGE_CLOCK_END)
        state->time = ++time;
    return time >= expiry;
}

#endif

#ifndef HINGE_TABLE_ONLY
/* Take in what an offload has shown: whether the local answer agreed with the remote one. In any order, at any time. */
#ifdef HINGE_LEARNED_COST
/* ... and what the offload has cost, in units of 2^-15: 32768 is as much as a wrong answer. */
void hinge_learn(struct hinge *state, uint8_t bin, bool agreed, uint16_t cost);
#else
void hinge_learn(struct hinge *state, uint8_t bin, bool agreed);
#endif
#endif

/* The bin of a confidence as int8 models give it: the largest output of a softmax, scale 1/256, zero point -128. */
static inline uint8_t hinge_bin_from_int8(int8_t max_softmax_q)
{
    return (uint8_t)(((unsigned int)(max_softmax_q + 128) * HINGE_BINS) >> 8);
}

#ifdef __cplusplus
}
#endif
#endif

#if defined(HINGE_IMPLEMENTATION) && !defined(HINGE_IMPLEMENTED)
#define HINGE_IMPLEMENTED

#ifndef HINGE_TABLE_ONLY

#if HINGE_SHIFT < 0 || HINGE_SHIFT > 15
#error "hinge.h: HINGE_SHIFT must be from 0 to 15"
#endif

/* A product of 16-bit numbers: every processor has one, or a short function for it. */
static inline uint32_t hinge_product(uint32_t x, uint32_t y)
{
    return (uint32_t)(uint16_t)x * (uint16_t)y;
}

/* The upper half of a product, or up to 2 less. */
static uint32_t hinge_high(uint32_t x, uint32_t y)
{
    const uint32_t x_high = x >> 16, y_high = y >> 16;
    return hinge_product(x_high, y_high) + (hinge_product(x_high, y) >> 16) + (hinge_product(x, y_high) >> 16);
}

/* The first whole number above 2^(whole + fraction), for whole < 32 and a fraction in units of 2^-32. */
static uint32_t hinge_power(uint32_t whole, uint32_t fraction)
{
    static const uint32_t terms[] = {0x007A5D40u, 0x024EF0A6u, 0x0E48E735u, 0x3D7B6ADAu, 0xB1725D47u};
    uint32_t power = 0;
    uint_fast8_t term = 0;
    do
        power = hinge_high(power + terms[term], fraction);
    while (++term < 5);
    return ((0x80000000u | (power >> 1)) >> (31 - whole)) + 1;
}

/* part / all in units of 2^-32, by long division, for part <= all < 2^31; 1 itself becomes the largest number. */
static uint32_t hinge_share(uint32_t part, uint32_t all)
{
    uint32_t share = 0;
    uint_fast8_t bit = 32;
    do {
        part <<= 1;
        share <<= 1;
        if (part >= all) {
            part -= all;
            share++;
        }
    } while (--bit);
    return share;
}

/* The first time after exp(n s^2 / alpha), for a surplus s in units of 2^-32. */
static uint32_t hinge_licence(uint32_t surplus, uint32_t offloads)
{
    const uint32_t each = hinge_high(hinge_high(surplus, HINGE_RATE), surplus); /* what an offload brings */
    const uint32_t whole =
        (hinge_product(each >> 16, offloads) + (hinge_product(each, offloads) >> 16)) >> (16 - HINGE_SHIFT);
    if (whole > 31)
        return 0xFFFFFFFFu;
    return hinge_power(whole, (each * offloads) << HINGE_SHIFT);
}

/* Count an offload of a bin. */
static void hinge_count(struct hinge_bin *bin, bool agreed)
{
    const uint32_t offloads = bin->offloads + (uint32_t)1, agreements = bin->agreements + (uint32_t)agreed;
    const uint32_t full = offloads >> 16;
    bin->offloads = (uint16_t)(offloads >> full);
    bin->agreements = (uint16_t)(agreements >> full);
}

#ifdef HINGE_LEARNED_COST

static uint32_t hinge_root(uint32_t square)
{
    uint32_t root = 0, bit = 0x40000000u;
    do {
        const uint32_t next = root + bit;
        root >>= 1;
        if (square >= next) {
            square -= next;
            root += bit;
        }
        bit >>= 2;
    } while (bit);
    return root;
}

/* The first time after exp(((f + c - 1) / (n^-1/2 + m^-1/2))^2 / alpha), for a mean cost c of m offloads; 1 where
   f + c <= 1. With the smaller and the larger of n and m, the fraction is f + c - 1 over 1 + (smaller / larger)^1/2,
   times smaller^1/2. */
static uint32_t hinge_expiry(const struct hinge_bin *bin, uint32_t threshold, uint32_t offloads)
{
    uint32_t surplus = hinge_share(bin->agreements, bin->offloads), smaller = bin->offloads, larger = offloads;
    if (surplus <= threshold)
        return 1;
    if (smaller > larger) {
        smaller = offloads;
        larger = bin->offloads;
    }
    surplus = hinge_high(surplus - threshold, hinge_share(65536u, 65536u + hinge_root(hinge_share(smaller, larger))));
    return hinge_licence(surplus, smaller);
}

/* The cost of an offload bears on every bin. */
static void hinge_refresh(struct hinge *state)
{
    const uint32_t threshold = ~hinge_share(state->costs, (uint32_t)state->offloads << 15);
    uint_fast8_t i;
#ifdef HINGE_MONOTONE
    uint32_t latest = 0;
#endif
    for (i = 0; i < HINGE_BINS; i++) {
        struct hinge_bin *const bin = &state->bins[i];
        if (!bin->offloads)
            continue;
        bin->expiry = hinge_expiry(bin, threshold, state->offloads);
#ifdef HINGE_MONOTONE
        if (bin->expiry < latest)
            bin->expiry = latest;
        latest = bin->expiry;
#endif
    }
}

void hinge_learn(struct hinge *state, uint8_t bin, bool agreed, uint16_t cost)
{
    uint32_t offloads, full;
    if (bin >= HINGE_BINS)
        return;
    hinge_count(&state->bins[bin], agreed);
    offloads = state->offloads + (uint32_t)1;
    full = offloads >> 16;
    state->offloads = (uint16_t)(offloads >> full);
    state->costs = (state->costs + (cost < 0x8000u ? cost : 0x8000u)) >> full;
    hinge_refresh(state);
}

#else

/* The first time after exp(n (f - q)^2 / alpha); 1 where f <= q. */
static uint32_t hinge_expiry(const struct hinge_bin *bin)
{
    const uint32_t share = hinge_share(bin->agreements, bin->offloads);
    return share <= HINGE_THRESHOLD ? 1 : hinge_licence(share - HINGE_THRESHOLD, bin->offloads);
}

#ifdef HINGE_MONOTONE
/* Give each bin that was seen the latest of the expiries up to its own. */
static void hinge_spread(struct hinge *state)
{
    uint32_t latest = 0;
    uint_fast8_t i;
    for (i = 0; i < HINGE_BINS; i++) {
        struct hinge_bin *const bin = &state->bins[i];
        if (bin->own > latest)
            latest = bin->own;
        if (bin->own)
            bin->expiry = latest;
    }
}
#endif

void hinge_learn(struct hinge *state, uint8_t bin, bool agreed)
{
    struct hinge_bin *of;
    if (bin >= HINGE_BINS)
        return;
    of = &state->bins[bin];
    hinge_count(of, agreed);
#ifdef HINGE_MONOTONE
    of->own = hinge_expiry(of);
    hinge_spread(state);
#else
    of->expiry = hinge_expiry(of);
#endif
}

#endif

#endif
#endif
