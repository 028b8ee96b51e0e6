/* Decides SAMPLES made-up samples and prints a hash of the decisions, then one of all that was learned.
   `streams.py` has the same in Python. */
#define HINGE_IMPLEMENTATION
#include "board.h"
#include "hinge.h"

static struct hinge state;
static uint32_t hash, draw, sample;
static uint8_t waiting;
static bool agreed;

static void mix(uint32_t value)
{
    hash = (hash ^ value) * 16777619u;
}

/* Bins crowd at the top; agreement rises with the bin, and is half as high for 4096 samples of every 8192. */
static bool agrees(uint8_t bin)
{
    return (draw >> 16) * HINGE_BINS < (bin + (uint32_t)1) << (16 - (sample >> 12 & 1));
}

/* The feedback of one offload at a time is late. */
static void play(void)
{
    uint8_t bin;
    bool offload;
    draw ^= draw << 13;
    draw ^= draw >> 17;
    draw ^= draw << 5;
    bin = (uint8_t)((((draw & 0xFFu) | ((draw >> 8) & 0xFFu)) * HINGE_BINS) >> 8);
    offload = hinge_decide(&state, bin);
    mix(offload);
    if (!(draw >> 8 & 7) && waiting < HINGE_BINS) {
        hinge_learn(&state, waiting, agreed);
        waiting = HINGE_BINS;
    }
    if (!offload)
        return;
    if (waiting < HINGE_BINS) {
        hinge_learn(&state, bin, agrees(bin));
    } else {
        waiting = bin;
        agreed = agrees(bin);
    }
}

int main(void)
{
    uint8_t bin;
    board_start();
    hash = 2166136261u; /* here, as boards need not set up variables that begin with a value */
    draw = 2463534242u;
    waiting = HINGE_BINS;
    for (sample = 1; sample <= SAMPLES; sample++)
        play();
    board_print(hash);
    mix(state.time);
#ifdef HINGE_PROBATION
    mix(state.learned);
    mix(state.fallen);
    mix(state.misled);
#endif
    for (bin = 0; bin < HINGE_BINS; bin++) {
        const struct hinge_bin *const of = &state.bins[bin];
#ifdef HINGE_PROBATION
        mix(of->left);
        mix(of->granted);
        mix(of->samples);
        mix(of->changed);
#else
        mix(of->expiry);
#endif
        mix(of->offloads);
        mix(of->agreements);
#ifdef HINGE_PROBATION
        mix(of->foretold);
#elif defined(HINGE_MONOTONE)
        mix(of->own);
#endif
    }
    board_print(hash);
    board_end();
    return 0;
}
