/* Takes the messages of tables.h, one after another, with samples in between, and prints a hash of what was decided, and
   one of the state at the end. `streams.py` has the same in Python, and writes tables.h. */
#define HINGE_IMPLEMENTATION
#include "board.h"
#include "hinge.h"
#include "tables.h"

static struct hinge state;
static uint32_t hash, draw;

static void mix(uint32_t value)
{
    hash = (hash ^ value) * 16777619u;
}

static void play(void)
{
    uint8_t bin;
    draw ^= draw << 13;
    draw ^= draw >> 17;
    draw ^= draw << 5;
    bin = (uint8_t)((((draw & 0xFFu) | ((draw >> 8) & 0xFFu)) * (HINGE_BINS + 1)) >> 8); /* one too high, too */
    mix(hinge_decide(&state, bin));
    mix(state.accepted);
}

int main(void)
{
    uint32_t table, sample;
    uint8_t bin;
    board_start();
    hash = 2166136261u; /* here, as boards need not set up variables that begin with a value */
    draw = 2463534242u;
    for (table = 0; table < sizeof lengths / sizeof lengths[0]; table++) {
        mix(hinge_take(&state, messages[table], lengths[table]));
        for (sample = 0; sample < SAMPLES; sample++)
            play();
    }
    board_print(hash);
    mix(state.counter);
    for (bin = 0; bin < HINGE_BINS; bin++) {
        mix(state.bins[bin].left);
        mix(state.bins[bin].granted);
    }
    board_print(hash);
    board_end();
    return 0;
}
