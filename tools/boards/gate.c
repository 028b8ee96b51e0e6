/* Reads confidences from the host, a byte each, and answers each with its decision. After an offload it reads one byte
   more: whether local agreed with remote. */
#define HINGE_IMPLEMENTATION
#include "arm.h"
#include "board.h"
#include "hinge.h"

static struct hinge state;

static uint32_t terminal(uint32_t mode)
{
    const struct {
        const char *name;
        uint32_t mode, length;
    } request = {":tt", mode, 3};
    return arm_call(ARM_OPEN, &request);
}

/* Whether a byte came or went. */
static bool move(uint32_t operation, uint32_t file, char *byte)
{
    const struct {
        uint32_t file;
        char *bytes;
        uint32_t length;
    } request = {file, byte, 1};
    return arm_call(operation, &request) == 0;
}

int main(void)
{
    const uint32_t input = terminal(0), output = terminal(4);
    char byte;
    board_start();
    while (move(ARM_READ, input, &byte)) {
        const uint8_t bin = hinge_bin_from_int8((int8_t)byte);
        byte = (char)hinge_decide(&state, bin);
        if (move(ARM_WRITE, output, &byte) && byte && move(ARM_READ, input, &byte))
            hinge_learn(&state, bin, byte != 0);
    }
    board_end();
    return 0;
}
