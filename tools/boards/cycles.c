/* Counts an ATmega328P's cycles. Prints, in this order:
     an accepted and an offloaded decision, where the program has one call of hinge_decide, which compilers inline;
     an accepted decision by a function of its own, from the call to the return, both included;
     the shortest and the longest lesson of many, likewise;
     the paper's formula in floating point, likewise: an accepted decision, a lesson. */
#define HINGE_IMPLEMENTATION
#include <avr/io.h>
#include <math.h>

#include "board.h"
#include "hinge.h"

#define APART __attribute__((noinline, noclone))
#define NOTHING 9 /* cycles of a call of nothing(): call, mov, ret */

static struct hinge state;
static struct {
    uint32_t time;
    uint16_t offloads[HINGE_BINS];
    float agreement[HINGE_BINS];
} paper;
static volatile uint8_t some_bin, result;
static volatile bool agreed;

APART static uint8_t nothing(struct hinge *of, uint8_t bin)
{
    (void)of;
    __asm__ volatile("");
    return bin;
}

/* hinge_decide with a body of its own, so that the program keeps to one call of that. */
APART static bool decide_apart(struct hinge *of, uint8_t bin)
{
    uint32_t time, expiry = 0;
    if (bin < HINGE_BINS)
        expiry = of->bins[bin].expiry;
    time = of->time;
    if (time < HINGE_CLOCK_END)
        of->time = ++time;
    return time >= expiry;
}

APART static bool float_decide(struct hinge *of, uint8_t bin)
{
    const float n = paper.offloads[bin];
    (void)of;
    paper.time++;
    return n == 0 || 1 - (paper.agreement[bin] - sqrtf(ALPHA * logf((float)paper.time) / n)) >= OFFLOAD_COST;
}

APART static bool float_learn(struct hinge *of, uint8_t bin)
{
    const float n = paper.offloads[bin]++;
    (void)of;
    paper.agreement[bin] = (n * paper.agreement[bin] + agreed) / (n + 1);
    return true;
}

APART static bool learn(struct hinge *of, uint8_t bin)
{
    hinge_learn(of, bin, agreed);
    return true;
}

#define TIMED(expression)             \
    __extension__({                   \
        const uint16_t start = TCNT1; \
        result = (expression);        \
        (uint16_t)(TCNT1 - start);    \
    })
#define CYCLES(call) (TIMED(call(&state, some_bin)) - TIMED(nothing(&state, some_bin)) + NOTHING)

int main(void)
{
    uint16_t shortest = 0xFFFFu, longest = 0, sample;
    board_start();
    some_bin = 7;
    for (sample = 0; sample < 2; sample++) {
        state.bins[some_bin].expiry = sample ? 0 : 1000000;
        board_print(TIMED(hinge_decide(&state, some_bin)) - TIMED(some_bin));
    }
    state.bins[some_bin].expiry = 1000000;
    board_print(CYCLES(decide_apart));
    for (sample = 0; sample < 2000; sample++) {
        uint16_t cycles;
        agreed = (sample & 3) != 0;
        cycles = CYCLES(learn);
        shortest = cycles < shortest ? cycles : shortest;
        longest = cycles > longest ? cycles : longest;
    }
    board_print(shortest);
    board_print(longest);
    paper.time = 100000;
    paper.offloads[some_bin] = 1000;
    paper.agreement[some_bin] = 0.9f;
    board_print(CYCLES(float_decide));
    board_print(CYCLES(float_learn));
    board_end();
    return 0;
}
