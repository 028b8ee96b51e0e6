/* hinge.h: decides, sample by sample, whether a local answer is good enough. C99, MIT licence.

   In one source file:      #define HINGE_IMPLEMENTATION
                            #include "hinge.h"
   wherever it is used:     #include "hinge.h"

   Settings come from hinge_config.h beside this file, as `hinge export c` writes it, or from the compiler's options:

     HINGE_BINS          how many bins confidences are sorted into, 1 to 255
     HINGE_EDGES         if defined: where each bin but the lowest begins, in log-odds of 16 bits, {-1024, 2048, 4100};
                         if not: bins are of equal width
     HINGE_PROBATION     if defined: Probation, with the settings
     HINGE_BREAK_EVEN    one minus the offload cost, in units of 2^-16, 1 to 65535
     HINGE_LG_BREAK_EVEN, HINGE_LG_COST, HINGE_LG_AUDIT
                         log2 of that, of the offload cost, and of 20 cost^1/2 / break-even, in units of 2^-14
     HINGE_MONOTONE      if defined in place of it: HI-LCB; if neither is: HI-LCB-lite; with the settings
     HINGE_THRESHOLD     one minus the offload cost, in units of 2^-32, rounded up
     HINGE_RATE          log2(e) / alpha / 2^HINGE_SHIFT, in units of 2^-32
     HINGE_SHIFT         0 to 15
     HINGE_TABLE_ONLY    if defined: no learning, as licences (HINGE_PROBATION) or expiries are found elsewhere; no
                         other setting is needed

   All arithmetic is in whole numbers: no floating point, no division, no memory but the state, which is the caller's. A
   state of zeros has seen nothing. It holds no pointers, so that it may be kept in flash or EEPROM byte by byte, with
   its seal.

   Probation's licences are counted down: `left` samples of a bin are accepted, the next one is offloaded as an audit, and
   the licence begins again with the length `granted`, until the audit's feedback replaces it. By HI-LCB a bin is accepted
   until its expiry, a time counted in samples, and only an offload moves it.

   At the limits:
     a bin too high    is offloaded, as one never seen; to learn about it changes nothing.
     the clock         stops at 2^31. From there a bin whose expiry is later is accepted for good, and every other one
                       is offloaded until it has earned as much. Such an expiry is earned wrongly with a chance of at
                       most 2^(-62 alpha) at each offload. Probation's licences grow no longer by it from there.
     an expiry         of 2^32 and beyond becomes 2^32 - 1.
     a licence         of more than 2^30 samples is 2^30 long; in a table it may have 2^32 - 1.
     2^29 samples      of a bin: evidence that bears as many bears all that follow.
     8192 offloads     of a bin, by Probation, become 4096, and its agreements and samples half as many.
     65536 offloads    of a bin, by HI-LCB, become 32768, and its agreements half as many. What is left is a weighted
                       mean with weights of at most 1: the bound that the policy rests on holds for it as for a plain
                       one. */

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

/* What the bytes of a state mean; the first number goes up when that changes with this file. */
#define HINGE_LAYOUT (0x00020000u | HINGE_POLICY << 8 | HINGE_BINS)
#if defined(HINGE_PROBATION) && defined(HINGE_TABLE_ONLY)
#define HINGE_POLICY 1u
#elif defined(HINGE_PROBATION)
#define HINGE_POLICY 2u
#elif defined(HINGE_TABLE_ONLY)
#define HINGE_POLICY 3u
#elif defined(HINGE_MONOTONE)
#define HINGE_POLICY 4u
#else
#define HINGE_POLICY 5u
#endif

#ifdef HINGE_PROBATION

#define HINGE_MOST_SEEN 0x20000000u

struct hinge_bin {
    uint32_t left, granted; /* samples that the licence has left, and how long it is */
#ifndef HINGE_TABLE_ONLY
    uint32_t samples; /* of the bin since its record began, and those left */
    uint32_t changed; /* Page's sum, in units of 2^-14 bits: break-even against the record */
    uint16_t offloads, agreements;
    uint16_t foretold; /* the mean by which bins below testified, in units of 2^-16; 0: they did not */
#endif
};

struct hinge {
#ifndef HINGE_TABLE_ONLY
    uint32_t time, learned;  /* samples decided and offloads learned since all records began */
    uint32_t fallen, misled; /* Page's sums of all bins: has agreement fallen, has testimony misled */
#endif
    struct hinge_bin bins[HINGE_BINS];
};

/* Whether to offload the next sample, whose confidence lies in `bin`. */
static inline bool hinge_decide(struct hinge *state, uint8_t bin)
{
    struct hinge_bin *of;
#ifndef HINGE_TABLE_ONLY
    if (state->time < HINGE_CLOCK_END)
        state->time++;
#endif
    if (bin >= HINGE_BINS)
        return true;
    of = &state->bins[bin];
    if (of->left) {
        of->left--;
        return false;
    }
#ifndef HINGE_TABLE_ONLY
    if (of->samples < 2 * HINGE_MOST_SEEN) /* which feedback that is lost may lead to */
        of->samples += of->granted;
#endif
    of->left = of->granted;
    return true;
}

#else

struct hinge_bin {
    uint32_t expiry;
#ifndef HINGE_TABLE_ONLY
    uint16_t offloads, agreements;
#ifdef HINGE_MONOTONE
    uint32_t own; /* the expiry that the bin's own offloads give it */
#endif
#endif
};

struct hinge {
    uint32_t time; /* samples decided so far */
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
void hinge_learn(struct hinge *state, uint8_t bin, bool agreed);
#endif

#ifdef HINGE_EDGES
/* log2(confidence / (1 - confidence)) in units of 2^-10, for a confidence in units of 2^-32; at most 32767 either way. */
int16_t hinge_log_odds(uint32_t confidence);

/* The bin of a confidence in these log-odds. */
static inline uint8_t hinge_bin_from_log_odds(int16_t log_odds)
{
    static const int16_t edges[HINGE_BINS - 1] = HINGE_EDGES;
    uint8_t bin = 0;
    while (bin < HINGE_BINS - 1 && edges[bin] <= log_odds)
        bin++;
    return bin;
}
#endif

/* The bin of a confidence in units of 2^-32. */
static inline uint8_t hinge_bin(uint32_t confidence)
{
#ifdef HINGE_EDGES
    return hinge_bin_from_log_odds(hinge_log_odds(confidence));
#else
    return (uint8_t)(((confidence >> 16) * HINGE_BINS) >> 16);
#endif
}

/* The bin of a confidence as int8 models give it: the largest output of a softmax, scale 1/256, zero point -128. */
static inline uint8_t hinge_bin_from_int8(int8_t max_softmax_q)
{
    return hinge_bin((uint32_t)(max_softmax_q + 128) << 24);
}

/* The CRC-32 of some bytes, or of them after others whose CRC is `crc`. */
static inline uint32_t hinge_crc(uint32_t crc, const uint8_t *bytes, uint32_t length)
{
    crc = ~crc;
    while (length--) {
        uint_fast8_t bit = 8;
        crc ^= *bytes++;
        do
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        while (--bit);
    }
    return ~crc;
}

/* For a state that is kept in flash or EEPROM, byte by byte: a number to be written after it. What was erased or torn,
   or is of other bins or another policy, may accept everything for ever, so begin from HINGE_START if it is not sound. */
static inline uint32_t hinge_seal(const struct hinge *state)
{
    return hinge_crc(HINGE_LAYOUT, (const uint8_t *)state, (uint32_t)sizeof *state);
}

/* Whether a state is that which was sealed. */
static inline bool hinge_is_sound(const struct hinge *state, uint32_t seal)
{
    return hinge_seal(state) == seal;
}

#ifdef __cplusplus
}
#endif
#endif

#if defined(HINGE_IMPLEMENTATION) && !defined(HINGE_IMPLEMENTED)
#define HINGE_IMPLEMENTED

/* A product of 16-bit numbers: every processor has one, or a short function for it. */
static inline uint32_t hinge_product(uint32_t x, uint32_t y)
{
    return (uint32_t)(uint16_t)x * (uint16_t)y;
}

#if defined(HINGE_EDGES) || (defined(HINGE_PROBATION) && !defined(HINGE_TABLE_ONLY))
/* log2(x) in units of 2^-14, at most 2 too low, for 0 < x < 65536: it rises with x, and doubling x adds 16384. */
static int32_t hinge_lg(uint32_t x)
{
    int32_t lg = (int32_t)15 << 14;
    int16_t bit = 1 << 13;
    for (; x >> 16; x >>= 1)
        lg += 16384;
    for (; lg && !(x >> 15); x <<= 1) /* 0 ends, too */
        lg -= 16384;
    do {
        x = hinge_product(x, x) >> 15;
        if (x >> 16) {
            x >>= 1;
            lg += bit;
        }
        bit >>= 1;
    } while (bit);
    return lg;
}
#endif

#ifdef HINGE_EDGES
int16_t hinge_log_odds(uint32_t confidence)
{
    int32_t log_odds;
    if (!confidence)
        return -32767;
    log_odds = (hinge_lg(confidence) - hinge_lg(~confidence + 1)) >> 4;
    return (int16_t)(log_odds > 32767 ? 32767 : log_odds < -32767 ? -32767 : log_odds);
}
#endif

#ifndef HINGE_TABLE_ONLY

#ifdef HINGE_PROBATION

/* The same as in Python, where their meaning is explained (hinge/policies/probation.py). */
#define HINGE_LG_SCALE 70810  /* log2 of 20 */
#define HINGE_DOUBT 70909     /* 3 nats */
#define HINGE_LG_FALL (-6800) /* log2 of 3/4 */
#define HINGE_COUNTED 8192u   /* offloads, at most */
#define HINGE_LONGEST 491520  /* log2 of 2^30 */
#define HINGE_LOUDEST 0x18000 /* 6 bits: what an agreement may say */

/* 2^y, to 0.4 % and to a whole number; at most 2^30. */
static uint32_t hinge_power(int32_t y)
{
    const uint32_t f = (uint32_t)y >> 2 & 4095u;
    const uint32_t m = 4096u + ((f * (2689u + (1407u * f >> 12))) >> 12);
    const int32_t whole = y >> 14;
    if (y < 0)
        return 0;
    if (y >= HINGE_LONGEST)
        return 0x40000000u;
    return whole < 12 ? m >> (12 - whole) : m << (whole - 12);
}

/* (n + 1) kl((a + 1/2) / (n + 1), q) of a record whose mean exceeds q, else 0; at most 30 bits. */
static int32_t hinge_evidence(uint32_t n, uint32_t a)
{
    const uint32_t hits = 2 * a + 1, misses = 2 * (n - a) + 1;
    int32_t all, above, below;
    if (a << 16 <= HINGE_BREAK_EVEN * n)
        return 0;
    all = hinge_lg(2 * n + 2);
    above = hinge_lg(hits) - all - HINGE_LG_BREAK_EVEN;
    below = hinge_lg(misses) - all - HINGE_LG_COST;
    if (above <= 0)
        return 0;
    if (above > HINGE_LOUDEST)
        above = HINGE_LOUDEST;
    above = (int32_t)(hits * (uint32_t)above + misses * (uint32_t)below) >> 1;
    return above > HINGE_LONGEST ? HINGE_LONGEST : above < 0 ? 0 : above;
}

/* How many samples of a bin may be accepted from now on, after so many since its record began. */
static uint32_t hinge_licence(struct hinge *state, uint8_t bin, uint32_t seen)
{
    struct hinge_bin *const of = &state->bins[bin];
    uint32_t n = 0, a = 0, support = 0, agreed = 0, held;
    int32_t strongest = 0, least, other;
    uint8_t below = bin;
    of->foretold = 0;
    if ((uint32_t)of->agreements << 16 < HINGE_BREAK_EVEN * (uint32_t)of->offloads)
        return 0;
    do {
        int32_t evidence;
        n += state->bins[below].offloads;
        a += state->bins[below].agreements;
        while (n > HINGE_COUNTED) {
            n >>= 1;
            a >>= 1;
        }
        evidence = hinge_evidence(n, a);
        if (evidence > strongest) {
            strongest = evidence;
            support = n;
            agreed = a;
        }
    } while (below--);
    if (!strongest)
        return 0;
    held = hinge_power(strongest + hinge_lg(support));
    if (held <= support + seen)
        return 0;
    least = hinge_lg(held - support - seen);
    other = HINGE_LG_AUDIT + (hinge_lg(state->time) >> 1);
    if (other < least)
        least = other;
    other = HINGE_LG_SCALE + hinge_lg(of->offloads + (uint32_t)1) + hinge_evidence(of->offloads, of->agreements);
    other = (int32_t)((uint32_t)other - state->misled);
    if (other < least)
        least = other;
    held = hinge_power(hinge_lg(2 * agreed + 1) - hinge_lg(2 * support + 2) + ((int32_t)16 << 14));
    of->foretold = (uint16_t)(held > 65535 ? 65535 : held);
    held = hinge_power((int32_t)((uint32_t)least - of->changed));
    return held ? held : 1;
}

/* One of Page's sums after one more offload, by the log2 of its chances if there was a change, and if there was none. */
static uint32_t hinge_page(uint32_t sum, int32_t changed, int32_t usual)
{
    sum += (uint32_t)(changed - usual);
    return sum >> 31 ? 0 : sum;
}

/* Begin a record. The licence of its bin is running still. */
static void hinge_drop(struct hinge_bin *of)
{
    of->samples = of->left;
    of->changed = 0;
    of->offloads = of->agreements = of->foretold = 0;
}

void hinge_learn(struct hinge *state, uint8_t bin, bool agreed)
{
    struct hinge_bin *of;
    uint32_t all, hits, misses;
    int32_t predicted, usual;
    if (bin >= HINGE_BINS)
        return;
    of = &state->bins[bin];
    all = 2 * (uint32_t)of->offloads + 2;
    hits = 2 * (uint32_t)of->agreements + 1;
    misses = all - hits;
    usual = hinge_lg(all);
    predicted = hinge_lg(agreed ? hits : misses);
    state->fallen = agreed ? hinge_page(state->fallen, HINGE_LG_FALL, 0)
                           : hinge_page(state->fallen, hinge_lg(4 * all - 3 * hits) - 32768, predicted);
    predicted -= usual;
    usual = agreed ? HINGE_LG_BREAK_EVEN : HINGE_LG_COST;
    of->changed = hinge_page(of->changed, usual, predicted);
    if (of->foretold) {
        predicted = hinge_lg(agreed ? of->foretold : 65536u - of->foretold) - ((int32_t)16 << 14);
        state->misled = hinge_page(state->misled, usual, predicted);
    }
    if (state->learned < HINGE_CLOCK_END)
        state->learned++;
    if (state->fallen > (uint32_t)(HINGE_DOUBT + hinge_lg(state->learned))) {
        uint8_t other = HINGE_BINS;
        do {
            other--;
            state->bins[other].left = state->bins[other].granted = 0;
            hinge_drop(&state->bins[other]);
        } while (other);
        state->time = state->learned = 1;
        state->fallen = state->misled = 0;
    } else if (of->changed > (uint32_t)(HINGE_DOUBT + hinge_lg(of->offloads + (uint32_t)1))) {
        hinge_drop(of);
    }
    all = of->samples - of->left + 1; /* samples since the record began */
    if (of->offloads >= HINGE_COUNTED) {
        of->offloads >>= 1;
        of->agreements >>= 1;
        all >>= 1;
    }
    if (all > HINGE_MOST_SEEN)
        all = HINGE_MOST_SEEN;
    of->offloads++;
    of->agreements = (uint16_t)(of->agreements + agreed);
    of->left = of->granted = hinge_licence(state, bin, all);
    of->samples = all + of->left;
}

#else

#if HINGE_SHIFT < 0 || HINGE_SHIFT > 15
#error "hinge.h: HINGE_SHIFT must be from 0 to 15"
#endif

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
