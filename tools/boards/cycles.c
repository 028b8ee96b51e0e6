/* Counts an ATmega328P's cycles. Prints, in this order:
     an accepted and an offloaded decision, where the program has one call of hinge_decide, which compilers inline;
     the shortest and the longest lesson of many in all bins, to 8 cycles;
     the paper's formula in floating point as a function: an accepted decision, a lesson. */
#define HINGE_IMPLEMENTATION
#include <avr/io.h>
#include <math.h>

#include "board.h"
#include "hinge.h"

#define APART __attribute__((noinline, noclone))

static struct hinge state;
static struct {
    uint32_t time;
    uint16_t offloads[HINGE_BINS];
    float agreement[HINGE_BINS];
} paper;
static volatile uint8_t some_bin, result;
static volatile bool agreed;

APART static bool float_decide(uint8_t bin)
{
    const float n = paper.offloads[bin];
    paper.time++;
    return n == 0 || 1 - (paper.agreement[bin] - sqrtf(ALPHA * logf((float)paper.time) / n)) >= OFFLOAD_COST;
}

APART static bool float_learn(uint8_t bin)
{
    const float n = paper.offloads[bin]++;
    paper.agreement[bin] = (n * paper.agreement[bin] + agreed) / (n + 1);
    return true;
}

APART static bool learn(uint8_t bin)
{
    hinge_learn(&state, bin, agreed);
    return true;
}

/* Set a bin to be accepted, or to be offloaded. */
static void prepare(bool accepted)
{
#ifdef HINGE_PROBATION
    state.bins[some_bin].left = accepted ? 1000 : 0;
#else
    state.bins[some_bin].expiry = accepted ? 1000000 : 0;
#endif
}

#define TIMED(expression)             \
    __extension__({                   \
        const uint16_t start = TCNT1; \
        result = (expression);        \
        (uint16_t)(TCNT1 - start);    \
    })

int main(void)
{
    uint16_t shortest = 0xFFFFu, longest = 0, sample;
    board_start();
    some_bin = 7;
    for (sample = 0; sample < 2; sample++) {
        prepare(!sample);
        board_print(TIMED(hinge_decide(&state, some_bin)) - TIMED(some_bin));
    }
    TCCR1B = 2; /* every eighth cycle */
    for (sample = 0; sample < 2000; sample++) {
        uint16_t cycles;
        some_bin = (uint8_t)(sample % HINGE_BINS);
        agreed = (sample >> 4 & 3) != 0;
        cycles = TIMED(learn(some_bin));
        shortest = cycles < shortest ? cycles : shortest;
        longest = cycles > longest ? cycles : longest;
    }
    board_print(8 * (uint32_t)shortest);
    board_print(8 * (uint32_t)longest);
    TCCR1B = 1;
    paper.time = 100000;
    paper.offloads[some_bin] = 1000;
    paper.agreement[some_bin] = 0.9f;
    board_print(TIMED(float_decide(some_bin)) - TIMED(some_bin));
    board_print(TIMED(float_learn(some_bin)) - TIMED(some_bin));
    board_end();
    return 0;
}
