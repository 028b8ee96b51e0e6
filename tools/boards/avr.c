/* An ATmega328P: its UART, and sleep with interrupts off, at which simavr ends. */
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>

#include "board.h"

void board_start(void)
{
    UCSR0B = 1 << TXEN0;
    TCCR1B = 1; /* timer 1 counts cycles */
}

void board_put(char character)
{
    while (!(UCSR0A & (1 << UDRE0))) {
    }
    UDR0 = (uint8_t)character;
}

void board_end(void)
{
    while (!(UCSR0A & (1 << UDRE0))) {
    }
    cli();
    sleep_enable();
    sleep_cpu();
}
