/* The library as functions that other languages can call. */
#define HINGE_IMPLEMENTATION
#include "hinge.h"

uint8_t decide(struct hinge *state, uint8_t bin);
void learn(struct hinge *state, uint8_t bin, uint8_t agreed, uint16_t cost);
uint8_t bin_from_int8(int8_t max_softmax_q);
uint32_t seal(const struct hinge *state);
uint8_t is_sound(const struct hinge *state, uint32_t sealed);

uint8_t decide(struct hinge *state, uint8_t bin)
{
    return hinge_decide(state, bin);
}

void learn(struct hinge *state, uint8_t bin, uint8_t agreed, uint16_t cost)
{
#ifdef HINGE_LEARNED_COST
    hinge_learn(state, bin, agreed != 0, cost);
#else
    (void)cost;
    hinge_learn(state, bin, agreed != 0);
#endif
}

uint8_t bin_from_int8(int8_t max_softmax_q)
{
    return hinge_bin_from_int8(max_softmax_q);
}

uint32_t seal(const struct hinge *state)
{
    return hinge_seal(state);
}

uint8_t is_sound(const struct hinge *state, uint32_t sealed)
{
    return hinge_is_sound(state, sealed);
}
