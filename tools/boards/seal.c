/* What a program takes on that keeps its state in flash: the seal, and the check of a state that was read. */
#include "hinge.h"

uint32_t seal(const struct hinge *state);
bool is_sound(const struct hinge *state, uint32_t sealed);

uint32_t seal(const struct hinge *state)
{
    return hinge_seal(state);
}

bool is_sound(const struct hinge *state, uint32_t sealed)
{
    return hinge_is_sound(state, sealed);
}
