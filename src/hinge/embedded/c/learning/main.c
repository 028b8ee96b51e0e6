/* An example: bring your own local model and remote, in place of the two made-up functions below. */
#include <stdio.h>

#include "hinge.h"

static struct hinge gate = HINGE_START;

/* The largest softmax output of an int8 model, for one sample. */
static int8_t local_confidence(unsigned int sample)
{
    return (int8_t)((int)((sample * 97u) & 0xFFu) - 128);
}

/* What the remote would say about it: whether the local answer was the same. */
static bool remote_agrees(unsigned int sample)
{
    return ((sample * 97u) & 0xFFu) > 90u;
}

int main(void)
{
    unsigned int sample, offloads = 0;
    for (sample = 0; sample < 1000u; sample++) {
        const uint8_t bin = hinge_bin_from_int8(local_confidence(sample));
        if (hinge_decide(&gate, bin)) {
            hinge_learn(&gate, bin, remote_agrees(sample)); /* whenever the remote's answer comes */
            offloads++;
        }
    }
    printf("%u of %u samples offloaded\n", offloads, sample);
    return 0;
}
