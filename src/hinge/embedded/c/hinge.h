/* hinge.h: decides, sample by sample, whether a local answer is good enough. C99, MIT licence.

   In one source file:      #define HINGE_IMPLEMENTATION
                            #include "hinge.h"
   wherever it is used:     #include "hinge.h"

   Settings come from hinge_config.h beside this file, as `hinge export c` writes it, or from the compiler's options:

     HINGE_BINS          how many bins confidences are sorted into, 1 to 255
     HINGE_EDGES         if defined: the largest confidence, from 0 to 255, of each bin but the last, {31, 99, 200}; if
                         not: bins are of equal width
     HINGE_THRESHOLD     one minus the offload cost, in units of 2^-32, rounded up
     HINGE_LEARNED_COST  if defined, in place of HINGE_THRESHOLD: the mean offload cost is learned
     HINGE_RATE          log2(e) / alpha / 2^HINGE_SHIFT, in units of 2^-32
     HINGE_SHIFT         0 to 15
     HINGE_MONOTONE      if defined: HI-LCB, which takes agreement not to fall with confidence; if not: HI-LCB-lite
     HINGE_SENTINEL      if defined: Sentinel, with the setting below in place of those above
     HINGE_BREAK_EVEN    one minus the offload cost, a double between 0 and 1
     HINGE_TABLE_ONLY    if defined: no learning, as expiries, or Sentinel's licences, are found elsewhere; of the
                         others HINGE_BINS is needed, and HINGE_SENTINEL

   A bin is accepted until its expiry, a time counted in samples, and only an offload moves it. All arithmetic is in
   whole numbers: no floating point, no division, no memory but the state, which is the caller's. A state of zeros has
   seen nothing. It holds no pointers, so that it may be kept in flash or EEPROM byte by byte, with its seal.

   Sentinel's licences are counted down: `left` samples of a bin are accepted, the next one is offloaded as an audit, and
   the licence begins again, without learning with the length `granted`; a bin that has none is offloaded. To learn it
   needs doubles of 64 bits, by hardware or by the compiler's library, and no other function. To decide bit for bit as
   its twin in Python, it must be compiled without fused operations (-ffp-contract=off).

   At the limits:
     a bin too high    is offloaded, as one never seen; to learn about it changes nothing.
     the clock         stops at 2^31. From there a bin whose expiry is later is accepted for good, and every other one
                       is offloaded until it has earned as much. Such an expiry is earned wrongly with a chance of at
                       most 2^(-62 alpha) at each offload.
                       Sentinel, if it learns, begins again from nothing.
     a licence         of 2^32 samples and more is 2^32 - 1 long; of 2^31 and more, where Sentinel learns, 2^31 - 2.
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

/* What the bytes of a state mean; the first number goes up when that changes with this file. */
#define HINGE_LAYOUT (0x00010000u | HINGE_POLICY << 8 | HINGE_BINS)
#if defined(HINGE_SENTINEL) && defined(HINGE_TABLE_ONLY)
#define HINGE_POLICY 1u
#elif defined(HINGE_SENTINEL)
#define HINGE_POLICY 2u
#elif defined(HINGE_TABLE_ONLY)
#define HINGE_POLICY 3u
#elif defined(HINGE_LEARNED_COST) && defined(HINGE_MONOTONE)
#define HINGE_POLICY 4u
#elif defined(HINGE_LEARNED_COST)
#define HINGE_POLICY 5u
#elif defined(HINGE_MONOTONE)
#define HINGE_POLICY 6u
#else
#define HINGE_POLICY 7u
#endif

#ifdef HINGE_SENTINEL

struct hinge_bin {
    uint32_t left, granted; /* samples that the licence has left, and how long it is */
#ifndef HINGE_TABLE_ONLY
    uint32_t arrivals; /* samples before the licence */
    uint32_t offloads, agreements;
    uint32_t recent_offloads, recent_agreements; /* since `rising` was last 0 */
    uint32_t weight, total;                      /* of the top block of the isotonic fit up to this bin */
    uint32_t support;                            /* offloads in all blocks that are evidence */
#if HINGE_BINS >= 32
    uint32_t cut; /* samples by which suspicion has cut the licence short */
#endif
    double evidence, suspicion, rising;          /* the last two: Page's sums, over audits and over other offloads */
    uint8_t below;                               /* bins below that are in the top block */
    uint8_t audited;                             /* whether the feedback of an audit is awaited */
#endif
};

struct hinge {
#ifndef HINGE_TABLE_ONLY
    uint32_t time, since;            /* samples decided so far, and before the last alarm */
    double audits, offloads, misfit; /* Page's sums of all bins: over audits, offloads, those that try the fit */
#if HINGE_BINS > 16
    uint32_t alarms; /* so far */
#endif
#endif
    struct hinge_bin bins[HINGE_BINS];
};

#ifndef HINGE_TABLE_ONLY
/* For hinge_decide: the same for a bin whose licence is used up, or that has none. */
bool hinge_decide_unlicensed(struct hinge *state, struct hinge_bin *of);
#endif

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
#ifdef HINGE_TABLE_ONLY
    of->left = of->granted;
    return true;
#else
    return hinge_decide_unlicensed(state, of);
#endif
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
#ifdef HINGE_EDGES
    static const uint8_t edges[] = HINGE_EDGES;
    uint8_t bin = 0;
    while (bin < HINGE_BINS - 1 && edges[bin] < max_softmax_q + 128)
        bin++;
    return bin;
#else
    return (uint8_t)(((unsigned int)(max_softmax_q + 128) * HINGE_BINS) >> 8);
#endif
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

#ifndef HINGE_TABLE_ONLY

#ifdef HINGE_SENTINEL

#include <float.h>

#if DBL_MANT_DIG != 53
#error "hinge.h: Sentinel learns in doubles of 64 bits; this compiler has others, and needs HINGE_TABLE_ONLY"
#endif
#ifdef HINGE_LEARNED_COST
#error "hinge.h: Sentinel does not learn the offload cost on a device"
#endif

/* The same as in Python, where their meaning is explained (hinge/policies/sentinel.py). */
#define HINGE_ALPHA 0.6
#define HINGE_ENTRY 0.3
#define HINGE_WARM 96.0
#define HINGE_FINENESS (HINGE_BINS / 16.0)
#define HINGE_AUDIT 20.0
#define HINGE_HURRY 20u
#define HINGE_TRIED(n) (HINGE_BINS > 16 ? 5 * HINGE_BINS * (n) / 4 : HINGE_HURRY * (n)) /* HURRY F n ... */
#define HINGE_MANY (0xFFFFFFFFu / 5 / (HINGE_BINS > 16 ? HINGE_BINS : 16)) /* ... which fits into 32 bits */
#define HINGE_SUSPECTED 1.75
#define HINGE_REFUTED 2.0
#define HINGE_PROVEN 1.0
#define HINGE_ALARM 8.0
#define HINGE_FALL 0.75
#define HINGE_FALLEN 5.5
#define HINGE_RISE 5.0
#define HINGE_RISE_GROWTH 1.5
#define HINGE_SUREST 0.02
#define HINGE_TIE 1e-12
#define HINGE_LONGEST 0x7FFFFFFFu

union hinge_double {
    double value;
    uint64_t bits;
};

/* log x of x > 0: x is 2^k m with m from sqrt(1/2) to sqrt(2), and log m is 2 (s + s^3 / 3 + s^5 / 5 + ...) with
   s = (m - 1) / (m + 1). */
static double hinge_log(double x)
{
    static const double terms[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                   1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    union hinge_double m;
    double s, square, sum = 0.0;
    uint_fast8_t term = 0;
    int k;
    m.value = x;
    k = (int)(m.bits >> 52) - 1022;
    m.bits = (m.bits & 0x000FFFFFFFFFFFFFu) | 0x3FE0000000000000u;
    if (m.value < 0.7071067811865476) {
        m.value *= 2.0;
        k--;
    }
    s = (m.value - 1.0) / (m.value + 1.0);
    square = s * s;
    do
        sum = sum * square + terms[term];
    while (++term < 11);
    return k * 0.6931471805599453 + 2.0 * s * sum;
}

/* The square root of x >= 0, by Newton's method from 6 % above at most. */
static double hinge_sqrt(double x)
{
    union hinge_double root;
    uint_fast8_t steps = 4;
    root.value = x;
    root.bits = (root.bits >> 1) + 0x1FF8000000000000u;
    do
        root.value = 0.5 * (root.value + x / root.value);
    while (--steps);
    return root.value;
}

/* An agreement, with one agreement and one disagreement added. */
static double hinge_mean(uint32_t agreements, uint32_t offloads)
{
    return (agreements + 1.0) / (offloads + 2.0);
}

/* Whether a block's mean is q at most, so that it is no evidence that agreement is higher. */
static bool hinge_silent(uint32_t weight, uint32_t total, double q)
{
    return total <= (q + HINGE_TIE) * weight;
}

/* (n + 2) kl((a + 1) / (n + 2), q) of a block whose mean exceeds q, else 0. */
static double hinge_block_evidence(uint32_t weight, uint32_t total, double q)
{
    const double p = hinge_mean(total, weight);
    if (hinge_silent(weight, total, q) || total + 1.0 <= q * (weight + 2.0))
        return 0.0;
    return (weight + 2.0) * (p * hinge_log(p / q) + (1.0 - p) * hinge_log((1.0 - p) / (1.0 - q)));
}

/* 2 alpha (L - log(1 + L)) with L = log(1 + m / N). */
static double hinge_doubt(uint32_t support, double arrivals)
{
    const double span = hinge_log(1.0 + arrivals / support);
    return 2.0 * HINGE_ALPHA * (span - hinge_log(1.0 + span));
}

/* Whether all bins are. */
static bool hinge_suspected(const struct hinge *state)
{
    return state->audits > HINGE_SUSPECTED || state->offloads > HINGE_FALLEN;
}

/* Whether the top block of the fit up to a bin is silent. */
static bool hinge_is_silent(const struct hinge_bin *of)
{
    return hinge_silent(of->weight, of->total, HINGE_BREAK_EVEN);
}

/* The agreement of a bin by the fit; 0 where that is silent, as silent blocks are left as they were. */
static double hinge_believed(const struct hinge_bin *of)
{
    return hinge_is_silent(of) ? 0.0 : hinge_mean(of->total, of->weight);
}

/* Evidence that a licence needs after so many samples of its bin. */
static double hinge_entry(const struct hinge *state, uint32_t arrivals)
{
    double needed = HINGE_ENTRY * hinge_log(1.0 + arrivals / HINGE_WARM);
#if HINGE_BINS > 16
    if (state->alarms)
        needed += hinge_log(1.0 + (HINGE_FINENESS - 1.0) * state->alarms);
#else
    (void)state;
#endif
    return needed;
}

/* Whether a bin needs no others to testify for it. */
static bool hinge_has_proved_itself(const struct hinge_bin *of)
{
    return hinge_block_evidence(of->offloads, of->agreements, HINGE_BREAK_EVEN) > HINGE_PROVEN;
}

/* Whether a bin is, or all are. */
static bool hinge_hurried(const struct hinge *state, const struct hinge_bin *of)
{
    return of->suspicion > HINGE_SUSPECTED || hinge_suspected(state);
}

/* Samples of a bin after which one is audited. */
static uint32_t hinge_longest(const struct hinge *state, const struct hinge_bin *of)
{
    const double gap = hinge_believed(of) - HINGE_BREAK_EVEN;
    const uint32_t seen = of->arrivals + of->granted - of->left;
    uint32_t past = state->time - state->since, tried = of->offloads, samples = HINGE_LONGEST - 1;
    double most;
    if (gap <= 0.0 || hinge_hurried(state, of) || of->agreements < HINGE_BREAK_EVEN * of->offloads)
        return HINGE_HURRY;
    if (seen <= 0xFFFFFFFFu / HINGE_BINS && seen * HINGE_BINS < past)
        past = seen * HINGE_BINS;
    most = HINGE_AUDIT * hinge_sqrt(past * gap) / HINGE_BREAK_EVEN;
    if (most < HINGE_LONGEST)
        samples = (uint32_t)most;
    tried = HINGE_TRIED(tried < HINGE_MANY ? tried + 1 : HINGE_MANY);
    if (samples > tried && !hinge_has_proved_itself(of))
        samples = tried;
    return samples < HINGE_HURRY ? HINGE_HURRY : samples;
}

/* Whether the fit has foretold offloads badly. */
static bool hinge_is_refuted(const struct hinge *state)
{
#if HINGE_BINS > 16
    return state->misfit > HINGE_REFUTED && state->misfit > HINGE_REFUTED + hinge_log(HINGE_FINENESS);
#else
    return state->misfit > HINGE_REFUTED;
#endif
}

/* How many samples of a bin may be accepted from now on; 0: none. */
static uint32_t hinge_licence(const struct hinge *state, const struct hinge_bin *of)
{
    const uint32_t arrivals = of->arrivals + of->granted - of->left;
    const double entry = hinge_entry(state, arrivals);
    double evidence = of->evidence;
    uint32_t samples, support = of->support;
    if (hinge_is_refuted(state)) {
        evidence = hinge_block_evidence(of->offloads, of->agreements, HINGE_BREAK_EVEN);
        support = of->offloads;
    }
    if (!support)
        return 0;
    if (!(evidence > entry + hinge_doubt(support, arrivals)))
        return 0;
    samples = hinge_longest(state, of);
    while (samples && evidence - entry <= hinge_doubt(support, (double)arrivals + samples))
        samples >>= 1;
    return samples;
}

/* Give a bin a licence for so many samples in place of the one it has. */
static void hinge_grant(struct hinge_bin *of, uint32_t samples)
{
    of->arrivals += of->granted - of->left;
    of->granted = of->left = samples;
#if HINGE_BINS >= 32
    of->cut = 0;
#endif
}

/* Drop everything that was learned, and every licence. */
static void hinge_drop(struct hinge *state)
{
    uint_fast8_t i;
    for (i = 0; i < HINGE_BINS; i++) {
        struct hinge_bin *const of = &state->bins[i];
        of->left = of->granted = of->arrivals = 0;
#if HINGE_BINS >= 32
        of->cut = 0;
#endif
        of->offloads = of->agreements = of->recent_offloads = of->recent_agreements = 0;
        of->weight = of->total = of->support = 0;
        of->evidence = of->suspicion = of->rising = 0.0;
        of->below = of->audited = 0;
    }
    state->audits = state->offloads = state->misfit = 0.0;
    state->since = state->time;
}

/* By how many samples a licence that has run out goes on. */
static uint32_t hinge_further(const struct hinge *state, struct hinge_bin *of)
{
    uint32_t samples = 0;
    if (of->granted && !hinge_hurried(state, of))
        samples = hinge_licence(state, of);
    if (!samples)
        return 0;
    if (hinge_has_proved_itself(of)) {
        of->left = of->granted; /* as at its beginning */
        samples = hinge_licence(state, of);
        of->left = 0;
        return samples > of->granted ? samples - of->granted : 0;
    }
#if HINGE_BINS >= 32
    samples = samples > of->granted ? samples - of->granted : 0;
    return samples < of->cut ? samples : of->cut;
#else
    return 0;
#endif
}

bool hinge_decide_unlicensed(struct hinge *state, struct hinge_bin *of)
{
    bool audit;
    uint32_t samples;
    if (state->time >= HINGE_CLOCK_END) {
        state->time = 0;
        hinge_drop(state);
        state->time = 1;
    }
    audit = of->granted > 0;
    samples = hinge_further(state, of);
    if (samples) {
        of->granted += samples;
#if HINGE_BINS >= 32
        of->cut -= samples < of->cut ? samples : of->cut;
#endif
        of->left = samples - 1;
        return false;
    }
    samples = audit ? 0 : hinge_licence(state, of);
    hinge_grant(of, samples);
    if (samples) {
        of->left--;
        return false;
    }
    of->arrivals++;
    if (audit) { /* if the evidence still holds, the licence goes on while its feedback is awaited */
        samples = hinge_licence(state, of);
        hinge_grant(of, samples);
        of->audited |= samples > 0;
    }
    return true;
}

/* The log-likelihood ratio of two agreements, by one offload. */
static double hinge_ratio(bool agreed, double suspected, double usual)
{
    return hinge_log(agreed ? suspected / usual : (1.0 - suspected) / (1.0 - usual));
}

/* Add that to one of Page's sums. */
static void hinge_step(double *sum, double ratio)
{
    *sum += ratio;
    if (!(*sum > 0.0))
        *sum = 0.0;
}

/* Whether a bin that is accepted has come down to break-even. */
static void hinge_compare_audit(struct hinge *state, struct hinge_bin *of, bool agreed, double usual)
{
    const double surest = 1.0 - HINGE_SUREST * (1.0 - HINGE_BREAK_EVEN);
    const double fitted = hinge_believed(of);
    double ratio;
    if (usual < fitted)
        usual = fitted;
    if (usual < HINGE_BREAK_EVEN)
        usual = HINGE_BREAK_EVEN;
    if (usual > surest)
        usual = surest;
    ratio = hinge_ratio(agreed, HINGE_BREAK_EVEN, usual);
    hinge_step(&state->audits, ratio);
    hinge_step(&of->suspicion, ratio);
}

/* Whether a bin that is offloaded has come up to break-even; then only what was seen since counts. */
static void hinge_compare_offload(struct hinge_bin *of, bool agreed, double usual)
{
    if (usual < HINGE_BREAK_EVEN) {
        hinge_step(&of->rising, hinge_ratio(agreed, HINGE_BREAK_EVEN, usual));
        of->recent_offloads++;
        of->recent_agreements += (uint32_t)agreed;
    } else {
        of->rising = 0.0;
    }
    if (of->rising > HINGE_RISE + HINGE_RISE_GROWTH * hinge_log(of->offloads + 1.0)) {
        of->offloads = of->recent_offloads - 1; /* this one is counted with the others */
        of->agreements = of->recent_agreements - (uint32_t)agreed;
        of->rising = of->suspicion = 0.0;
    }
    if (!(of->rising > 0.0))
        of->recent_offloads = of->recent_agreements = 0;
}

/* Fit the bins up to i, from the fits of the bins before. What pools with a silent block is silent. */
static void hinge_fit(struct hinge *state, uint_fast8_t i)
{
    struct hinge_bin *const of = &state->bins[i];
    uint_fast8_t first = i;
    bool ended = false;
    double own;
    of->weight = of->offloads;
    of->total = of->agreements;
    while (first && !ended) {
        const struct hinge_bin *const before = &state->bins[first - 1];
        if ((double)before->total * of->weight < (double)of->total * before->weight)
            break;
        ended = hinge_is_silent(before);
        of->weight += before->weight;
        of->total += before->total;
        first--;
        first = (uint_fast8_t)(before->below < first ? first - before->below : 0);
    }
    of->evidence = 0.0;
    of->support = 0;
    if (first && !hinge_is_silent(of)) {
        of->evidence = state->bins[first - 1].evidence;
        of->support = state->bins[first - 1].support;
    }
    own = hinge_block_evidence(of->weight, of->total, HINGE_BREAK_EVEN);
    if (own > 0.0) {
        of->evidence += own;
        of->support += of->weight;
    }
    of->below = (uint8_t)(i - first);
}

/* Redo the fits from a bin upwards. A block that was silent and stays so leaves the evidence above as it is. */
static void hinge_refit(struct hinge *state, uint_fast8_t i)
{
    for (; i < HINGE_BINS; i++) {
        const struct hinge_bin *const of = &state->bins[i];
        const bool settled = of->weight && hinge_is_silent(of);
        hinge_fit(state, i);
        if (settled && hinge_is_silent(of))
            return;
    }
}

/* While all are suspected, let no licence last longer than that. */
static void hinge_hurry(struct hinge *state)
{
    uint_fast8_t i;
    for (i = 0; i < HINGE_BINS; i++) {
        struct hinge_bin *const of = &state->bins[i];
        if (of->left > HINGE_HURRY) {
#if HINGE_BINS >= 32
            of->cut += of->left - HINGE_HURRY;
#endif
            of->granted -= of->left - HINGE_HURRY;
            of->left = HINGE_HURRY;
        }
    }
}

void hinge_learn(struct hinge *state, uint8_t bin, bool agreed)
{
    struct hinge_bin *of;
    double usual;
    if (bin >= HINGE_BINS)
        return;
    of = &state->bins[bin];
    usual = hinge_mean(of->agreements, of->offloads);
    if (of->audited)
        hinge_compare_audit(state, of, agreed, usual);
    else
        hinge_compare_offload(of, agreed, usual);
    if (usual < HINGE_BREAK_EVEN && !hinge_is_silent(of))
        hinge_step(&state->misfit, hinge_ratio(agreed, usual, hinge_believed(of)));
    hinge_step(&state->offloads, hinge_ratio(agreed, HINGE_FALL * usual, usual));
    if (state->offloads > 2.0 * HINGE_FALLEN)
        state->offloads = 2.0 * HINGE_FALLEN;
    of->offloads++;
    of->agreements += (uint32_t)agreed;
    if (state->audits > HINGE_ALARM) {
        hinge_drop(state);
#if HINGE_BINS > 16
        state->alarms++;
#endif
        return;
    }
    hinge_refit(state, bin);
    if (hinge_suspected(state))
        hinge_hurry(state);
    if (of->audited) {
        of->audited = 0;
        hinge_grant(of, hinge_licence(state, of));
    }
}

#else

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
#endif
