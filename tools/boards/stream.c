/* Decides SAMPLES made-up samples and prints a hash of the decisions, then one of all that was learned.
   `streams.py` has the same in Python. */
#define HINGE_IMPLEMENTATION
#include "board.h"
#include "hinge.h"

static struct hinge state;
static uint32_t hash, draw, sample;

static void mix(uint32_t value)
{
    hash = (hash ^ value) * 16777619u;
}

static void learn(uint8_t bin, bool agreed)
{
#ifdef HINGE_LEARNED_COST
    hinge_learn(&state, bin, agreed, draw & 0x1000u ? 18022 : 14746); /* 0.55 or 0.45 */
#else
    hinge_learn(&state, bin, agreed);
#endif
}

/* Bins crowd at the top; agreement rises with the bin, and is half as high for 4096 samples of every 8192. */
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
    if (offload)
        learn(bin, (draw >> 16) * HINGE_BINS < (bin + (uint32_t)1) << (16 - (sample >> 12 & 1)));
}

#ifdef HINGE_SENTINEL
static void mix_double(double value)
{
    union hinge_double of;
    of.value = value;
    mix((uint32_t)of.bits);
    mix((uint32_t)(of.bits >> 32));
}

static void mix_bin(const struct hinge_bin *of)
{
    mix(of->left);
    mix(of->granted);
    mix(of->arrivals);
    mix(of->offloads);
    mix(of->agreements);
    mix_double(of->evidence);
    mix_double(of->suspicion);
    mix_double(of->rising);
}
#else
static void mix_bin(const struct hinge_bin *of)
{
    mix(of->expiry);
    mix(of->offloads);
    mix(of->agreements);
}
#endif

int main(void)
{
    uint8_t bin;
    board_start();
    hash = 2166136261u; /* here, as boards need not set up variables that begin with a value */
    draw = 2463534242u;
    for (sample = 1; sample <= SAMPLES; sample++)
        play();
    board_print(hash);
    for (bin = 0; bin < HINGE_BINS; bin++)
        mix_bin(&state.bins[bin]);
    board_print(hash);
    board_end();
    return 0;
}
