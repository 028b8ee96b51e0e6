/* What a board can do besides computing. A program has a main() that never returns but calls board_end(). */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

void board_start(void);
void board_put(char character);
void board_end(void);

/* Eight hexadecimal digits, in a line of their own. */
static inline void board_print(uint32_t value)
{
    uint8_t digit;
    for (digit = 0; digit < 8; digit++, value <<= 4) {
        const uint8_t nibble = (uint8_t)(value >> 28);
        board_put((char)(nibble < 10 ? '0' + nibble : 'A' + nibble - 10));
    }
    board_put('\n');
}

#endif
