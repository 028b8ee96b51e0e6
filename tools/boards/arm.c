/* A Cortex-M under QEMU, talking to the host by semihosting. */
#include "arm.h"
#include "board.h"

extern uint32_t stack_end[];
int main(void);

static void hang(void)
{
    for (;;) {
    }
}

static void reset(void)
{
    main();
    hang();
}

__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    void (*handlers[3])(void);
} vectors = {stack_end, {reset, hang, hang}};

uint32_t arm_call(uint32_t operation, const void *argument)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void board_start(void) {}

void board_put(char character)
{
    arm_call(ARM_WRITEC, &character);
}

void board_end(void)
{
    arm_call(ARM_EXIT, (const void *)ARM_EXITED);
    hang();
}
